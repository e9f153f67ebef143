"""What a service may be told, with the limits that protect it."""

from dataclasses import dataclass, field

from benfourier.errors import OptionError, check_whole


@dataclass(frozen=True)
class Settings:
    """Limits and habits of a service.

    Args:
        name: of the model in the Open Inference Protocol.
        body: bytes of one request, as sent and as unpacked.
        held: bytes of all requests that are being read, of the images of one as the network takes them, and of those
            that wait.
        images: in one request.
        pixels: of one image.
        seconds: for one request, from its first byte to its answer.
        queue: images that may wait; further ones are refused with 429.
        batch: images judged at once, as long as single requests do not hold more.
        wait: seconds for which the first of a batch waits for others.
        token: that requests must bear; None for none.
        watch: seconds between two looks at the guard's file; None to look only when asked.
        window: recent scores that are compared with the calibration scores.
    """

    name: str = "guard"
    body: int = 2**26
    held: int = 2**29
    images: int = 64
    pixels: int = 2**24
    seconds: float = 30.0
    queue: int = 512
    batch: int = 32
    wait: float = 0.005
    token: str | None = field(default=None, repr=False)
    watch: float | None = None
    window: int = 500

    def __post_init__(self) -> None:
        for name in ("body", "images", "pixels", "batch", "window"):
            check_whole(name, getattr(self, name))
        check_whole("held", self.held, least=self.body)
        check_whole("queue", self.queue, least=self.images)
        for name, least in (("seconds", 0.001), ("wait", 0.0), ("watch", 0.01)):
            value = getattr(self, name)
            if value is not None and not least <= value < float("inf"):
                raise OptionError(f"{name} is {value!r}; it must be a number of seconds, {least} at least")
        if not self.name or "/" in self.name:
            raise OptionError(f"name is {self.name!r}; it must be a word without a slash")
        if self.token is not None and (not self.token or not self.token.isascii() or not self.token.isprintable()):
            raise OptionError("the token is empty or holds unusual characters; use printable ASCII")
