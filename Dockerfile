# syntax=docker/dockerfile:1

# The service without its embedded servers. Node runs the TypeScript sources as they are: there is no compile step,
# only the bundle of the workflows is made beforehand.

FROM node:24-slim AS build
ENV NODE_ENV=production
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# No dependency of production needs its installation script: native parts come as packages of their own. Not `npm ci`,
# for the reason in dev/install.mjs: the lock file need not list the optional packages of every platform. The versions
# are those of the lock file all the same.
RUN npm install --no-save --omit=dev --ignore-scripts --no-audit --no-fund
COPY . .
# Into node_modules/.cache/galaxy-notify, under the hash of what it is made of; a start finds it there and writes nothing.
# Both bundles: with NOTIFICATION_PAYLOAD_KEYS the second one is used, and the process could not make it itself.
RUN ["node", "--input-type=module", "--eval", "\
import { workflowBundle } from './workers/workflow-bundle.ts';\
await workflowBundle();\
await workflowBundle({ encodesFailures: true });"]

FROM node:24-slim
# TLS to Temporal looks for the system's certificates, which the slim image does not have.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
ENV NODE_ENV=production
WORKDIR /app
# Owned by root: the process can read all of it and change none. It writes no file at all, so that the container may run
# with a read-only root file system (docker-compose.yml, deploy/helm).
COPY --from=build /app ./
# `node` of the image, by number: Kubernetes cannot tell of a name that it is not root.
USER 1000:1000
EXPOSE 8092
# Follows NOTIFICATION_INTERNAL_HTTP_ADDR only while the port stays 8092; override it together with the port.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["node", "--eval", "fetch('http://127.0.0.1:8092/healthz').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
# The operator's command line: docker exec <container> node cli/main.ts --help
CMD ["node", "workers/main.ts"]
