# The service in a container:
#   docker build -t benfourier .
#   docker run --read-only --tmpfs /cache -p 8000:8000 -v "$PWD:/data:ro" --user 12345 benfourier \
#     /data/guard.bf --model lid-mnist --weights /data/lid-mnist.safetensors
# Machines that reach it by a name, and not by an address or as localhost, need that name: --allow-host guard.example
# Another base image, such as the same one pinned by its digest: --build-arg BASE=python:3.11-slim@sha256:...
ARG BASE=python:3.11-slim
FROM ${BASE}

# further options of pip for torch, such as an index with builds for the CPU alone
ARG PIP_OPTIONS=""

WORKDIR /app
# Files that are not those of the digests are refused. Every index has builds of torch of its own, so it has none here.
COPY docker-requirements.txt constraints.txt ./
RUN pip install --no-cache-dir --no-compile --require-hashes -r docker-requirements.txt \
    && pip install --no-cache-dir --no-compile -c constraints.txt ${PIP_OPTIONS} torch
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir --no-compile --no-deps --no-build-isolation . \
    && mkdir -m 1777 /cache

# all that is ever written: compiled kernels and cached results
ENV NUMBA_CACHE_DIR=/cache/numba BENFOURIER_CACHE=/cache/results HOME=/cache PYTHONDONTWRITEBYTECODE=1
# a folder for networks of your own, named as module:factory
WORKDIR /data
USER 65534
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/v2/health/ready', timeout=2)"]
ENTRYPOINT ["benfourier", "serve", "--host", "0.0.0.0", "--port", "8000"]
