# The image of a node, from one of two bases: `gpu` (the default) takes torch from its base, `cpu` installs torch.
#   docker build -t muster-trainer:gpu .
#   images/build.sh                       the cpu image (FLAVOUR=cpu), even if no registry can be reached
# No `# syntax=` line: the frontend built into Docker 20.10 is enough, and pulling another one needs a registry.
ARG FLAVOUR=gpu
ARG GPU_BASE=pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime@sha256:6acf597eeb8e376a96580dde4952f37cc017fef732bb40bfc73f28f25e3f64b4
ARG CPU_BASE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d


FROM ${CPU_BASE} AS cpu-base
# An extra package index with CPU builds of torch. Without it, requirements/torch.sh finds the CPU build.
ARG TORCH_INDEX=""
RUN --mount=type=bind,source=requirements,target=/build/requirements \
    --mount=type=bind,source=images/install.sh,target=/build/install.sh \
    --mount=type=secret,id=ca --mount=type=secret,id=pip_conf \
    TORCH_INDEX="${TORCH_INDEX}" sh /build/install.sh
RUN --mount=type=bind,source=images/overlay.sh,target=/build/overlay.sh --mount=type=secret,id=ca \
    sh /build/overlay.sh

FROM ${GPU_BASE} AS gpu-base
RUN --mount=type=bind,source=images/rdma.sh,target=/build/rdma.sh --mount=type=secret,id=ca \
    sh /build/rdma.sh
RUN --mount=type=bind,source=images/overlay.sh,target=/build/overlay.sh --mount=type=secret,id=ca \
    sh /build/overlay.sh
RUN --mount=type=bind,source=requirements,target=/build/requirements \
    --mount=type=bind,source=images/install.sh,target=/build/install.sh \
    --mount=type=secret,id=ca --mount=type=secret,id=pip_conf \
    sh /build/install.sh --torch-from-base
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility


# The code comes last, so that a change only rebuilds one small layer. /muster is on the ranks' Python path, so their
# own packages may have any name but `muster`.
FROM ${FLAVOUR}-base AS node
ARG FLAVOUR
LABEL org.opencontainers.image.title="muster-trainer" \
      org.opencontainers.image.description="A node of a Muster training run: torchrun, the trainer, torch (${FLAVOUR})" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      muster.contract="7"
ENV PATH=/venv/bin:$PATH PYTHONPATH=/muster PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/home/muster USER=muster
WORKDIR /muster
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 CMD ["python", "-P", "-m", "muster.trainer.node", "health"]
ENTRYPOINT ["tini", "--", "python", "-P", "-m", "muster.trainer.node", "agent"]
COPY images/node.sh ./
COPY muster muster
COPY trainer muster/trainer
RUN python -m compileall -q --invalidation-mode unchecked-hash muster
USER muster
