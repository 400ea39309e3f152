# The book with its environment: docs/platforms.md says how to use it.
FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home reader
WORKDIR /home/reader/book
RUN chown reader:reader .
USER reader
# What the environment is made from goes first, so that a change of the text makes no new environment.
COPY --chown=reader:reader Makefile pyproject.toml setup.py requirements-nodeps.txt README.md LICENSE ./
COPY --chown=reader:reader scripts ./scripts
COPY --chown=reader:reader flashtrace_lib ./flashtrace_lib
COPY --chown=reader:reader notebooks/flashtrace_book ./notebooks/flashtrace_book
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN make env PYTHON=python TORCH_INDEX="${TORCH_INDEX}" && rm -rf /home/reader/.cache/pip
COPY --chown=reader:reader . .
# The copy above brings newer files; the environment was made from the same ones.
RUN touch .venv/.installed
EXPOSE 8888
CMD ["make", "help"]
