# delayq's image: API, workers, coordinator and command line. docs/deploying.md shows how to build and run it.
#
#   docker build --target delayq --tag delayq .
#   docker build --target spark --tag delayq-spark .        # with PySpark and Java, for `delayq backfill`
#
# The base is pinned to an exact version. To pin its bytes, append the digest that `docker buildx imagetools inspect`
# shows: --build-arg PYTHON=python:3.11.14-slim-bookworm@sha256:…
ARG PYTHON=python:3.11.14-slim-bookworm
ARG EXTRAS=server,kafka,rocketmq,rabbitmq,webhook,tracing

# -- wheels: the only stage with what it takes to build ------------------------------------------------------------------
FROM ${PYTHON} AS wheels
ARG EXTRAS
# With the constraints, two builds of one commit get the same packages, and so do both stages that build wheels.
ENV PIP_CONSTRAINT=/source/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
COPY pyproject.toml README.md LICENSE pyspark_delayq.py deploy/constraints.txt ./
COPY delayq/ delayq/
# The wheel contains them, too, by the links in delayq/_services.
COPY api/ api/
COPY docs/runbook.md docs/
COPY workers/ workers/
COPY coordinator/ coordinator/
RUN pip wheel --wheel-dir /wheels ".[${EXTRAS}]"

FROM wheels AS spark-wheels
# Some builders do not pass the arguments of a stage to the stages that are based on it.
ARG EXTRAS
RUN pip wheel --wheel-dir /wheels ".[${EXTRAS},spark]"

# -- delayq: what runs ---------------------------------------------------------------------------------------------------
FROM ${PYTHON} AS delayq
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="delayq" \
      org.opencontainers.image.description="Takes a message now and hands it to a topic later, at the millisecond that you chose" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.base.name="docker.io/library/python:3.11.14-slim-bookworm"
# The root file system may be read-only: the processes write only below /tmp, and read nothing from a home directory.
# The services are in /app. It is always on the path, and the working directory never is (SAFEPATH).
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONSAFEPATH=1 \
    PYTHONPATH=/app \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    HOME=/tmp
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --no-deps --root-user-action=ignore /wheels/*.whl
# Java (Spark) needs a user with a name.
RUN ln -s "$(python -c 'import delayq; print(*delayq.__path__)')/_services" /app \
    && groupadd --gid 10001 delayq \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin delayq
WORKDIR /tmp
USER 10001:10001
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
# The image runs three services with different health checks, so the caller sets them, as docker-compose.yml does.
HEALTHCHECK NONE
CMD ["python", "-m", "api"]

# -- spark: the same with Java, for the commands that read tables ---------------------------------------------------------
FROM delayq AS spark
USER 0:0
# Slim images have no folders for manuals, and Java's package needs this folder.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
RUN --mount=type=bind,from=spark-wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --no-deps --root-user-action=ignore /wheels/*.whl
USER 10001:10001
CMD ["delayq", "--help"]

# The default target.
FROM delayq AS final
