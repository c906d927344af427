# syntax=docker/dockerfile:1

# The service without its embedded servers. Node runs the TypeScript sources as they are: there is no compile step,
# only the bundle of the workflows is made beforehand.

# `npm run tool -- dev/images.mjs --write` pins it to a digest; `--release` fails while it is not.
ARG NODE_IMAGE=node:24-slim

# No package of either stage needs its installation script: native parts come as separate packages.
FROM ${NODE_IMAGE} AS bundle
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY dev/left-out.tgz dev/
# With the packages of development: the bundler is one of them.
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY . .
# Into node_modules/.cache/galaxy-notify, under the hash of what it is made of; a start finds it there and writes nothing.
# Both bundles: with NOTIFICATION_PAYLOAD_KEYS the second one is used, and the process could not make it itself.
RUN ["node", "--input-type=module", "--eval", "\
import { workflowBundle } from './workers/workflow-bundle.ts';\
await workflowBundle();\
await workflowBundle({ encodesFailures: true });"]

FROM ${NODE_IMAGE} AS packages
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY dev/left-out.tgz dev/
# Less the native engines of other platforms, and the sources of all in Rust: 118 MB that nothing here can run.
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund \
    && cd node_modules/@temporalio/core-bridge \
    && find releases -mindepth 1 -maxdepth 1 ! -name "$(uname -m)-unknown-linux-gnu" -exec rm -r {} + \
    && rm -r sdk-core

FROM ${NODE_IMAGE}
# TLS to Temporal looks for the system's certificates, which the slim image does not have. Nothing here installs packages.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* /opt/yarn-* /usr/local/lib/node_modules \
    /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack /usr/local/bin/yarn /usr/local/bin/yarnpkg
LABEL org.opencontainers.image.title="galaxy-notify" \
      org.opencontainers.image.description="Durable notification orchestration on Temporal" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/galaxy-notify/galaxy-notify"
ENV NODE_ENV=production
WORKDIR /app
# Owned by root: the process can read all of it and change none. It writes no file at all, so that the container may run
# with a read-only root file system (docker-compose.yml, deploy/helm).
COPY . .
COPY --from=packages /app/node_modules node_modules/
COPY --from=bundle /app/node_modules/.cache/galaxy-notify node_modules/.cache/galaxy-notify/
# `node` of the image, by number: Kubernetes cannot tell of a name that it is not root.
USER 1000:1000
EXPOSE 8092
# Follows NOTIFICATION_INTERNAL_HTTP_ADDR only while the port stays 8092; override it together with the port.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["node", "--eval", "fetch('http://127.0.0.1:8092/healthz').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
# The operator's command line: docker exec <container> node cli/main.ts --help
# Without the option, a process that has had nothing to do for some seconds throws away what was compiled and optimised, and
# does the first thousand pieces of work after that at half of its speed.
CMD ["node", "--no-memory-reducer", "workers/main.ts"]
