"""Settings of a service, with the limits that protect it."""

from dataclasses import dataclass, field

from benfourier.errors import OptionError, check_number, check_switch, check_whole

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ANY_HOST = "*"
ANY_ADDRESS = "any IP address"  # DNS rebinding needs a name


@dataclass(frozen=True)
class Settings:
    """Limits and behaviour of a service."""

    name: str = "guard"  # of the model in the Open Inference Protocol
    max_body_bytes: int = 2**26  # of one request, as sent and as unpacked
    # of all request bodies together, of the images of one request as the network takes them, and of all in the queue
    max_memory_bytes: int = 2**29
    max_images: int = 64  # in one request
    max_pixels: int = 2**24  # of all image files of one request, or of one image of a tensor
    timeout_seconds: float = 30.0  # for one request, from its head to its response
    max_queue: int = 512  # images in the queue; further ones get 429
    max_batch: int = 32  # images judged at once; a single request may hold more
    batch_wait_seconds: float = 0.005  # time that the first images of a batch wait for others
    deterministic: bool = False  # whether each batch is filled up to max_batch images: scores depend on no company
    token: str | None = field(default=None, repr=False)  # that requests must bear; None for none
    watch_seconds: float | None = None  # between two looks at the guard's file; SIGHUP reloads it in any case
    drift_window: int = 500  # number of recent scores to compare with the calibration scores
    hosts: tuple[str, ...] = LOOPBACK  # allowed in the header Host, against DNS rebinding; see ANY_HOST, ANY_ADDRESS

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_images", "max_pixels", "max_batch", "drift_window"):
            check_whole(name, getattr(self, name))
        check_whole("max_memory_bytes", self.max_memory_bytes, least=self.max_body_bytes)
        check_whole("max_queue", self.max_queue, least=self.max_images)
        for name, least in (("timeout_seconds", 0.001), ("batch_wait_seconds", 0.0), ("watch_seconds", 0.01)):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), least=least)
        check_switch("deterministic", self.deterministic)
        if not self.name or "/" in self.name:
            raise OptionError(f"name is {self.name!r}; it must be a word without a slash")
        if self.token is not None and (not self.token or not self.token.isascii() or not self.token.isprintable()):
            raise OptionError("the token is empty or holds unusual characters; use printable ASCII")
        for host in self.hosts:
            if not host or "/" in host or host.startswith("["):
                raise OptionError(f"allowed host is {host!r}; it must be a name or an address without port, or '*'")


def allowed_hosts(bound: str, more: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the hosts that requests may name for a service bound to an address.

    These are the loopback names, the address itself and those given. A service bound to all addresses does not know
    its own: it allows all addresses, and no names but those given.
    """
    own = ANY_ADDRESS if bound in ("0.0.0.0", "::", "") else bound  # noqa: S104, compared only
    return tuple(dict.fromkeys((*LOOPBACK, own, *more)))
