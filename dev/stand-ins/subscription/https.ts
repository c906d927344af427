/** JSON over HTTPS, as the transport of stand-in routers. */
import { createRouterConnections } from '../../../activities/subscription/router/connection.ts';
import { box, signCommand } from '../../../activities/subscription/router/signing.ts';
import type { PushedMessage, SentCommand } from '../../../api/subscription/router-wire.ts';
import {
  BLOCK_BYTES,
  OLDEST_VERSION,
  SESSION_PATH,
  answerLineSchema,
  commandsPath,
  packBlocks,
  sessionEventSchema,
  smpAnswerSchema,
} from '../../../api/subscription/router-wire.ts';
import { createLoopbackCertificate } from '../certificate.ts';
import { startHttpsServer } from './https-server.ts';
import { nameOf } from './router-rules.ts';
import type { RouterTransport, SubscriberSessions } from './transport.ts';

const ENDLESS_MS = 2 ** 31 - 1;
const COMMAND_TIMEOUT_MS = 10_000;
const CONNECT_TIMEOUT_MS = 5_000;

export const HTTPS: RouterTransport = {
  createCertificate: createLoopbackCertificate,
  startServer: startHttpsServer,
  messageSeals: {
    meta: (message, secret) =>
      box(Buffer.from(JSON.stringify(message)), Buffer.from(secret, 'base64url'), 'message-meta'),
    body: ({ body }) => body,
  },
  pushSeals: {
    code: (code, secret) =>
      box(Buffer.from(code, 'base64url'), Buffer.from(secret, 'base64url'), 'verification'),
    messages(newest, secret) {
      const list = newest.map(({ router: { host, port }, last: { notifierId, at, meta } }): PushedMessage => {
        return { host, port, notifierId, at, meta };
      });
      return box(Buffer.from(JSON.stringify(list)), Buffer.from(secret, 'base64url'), 'message-list');
    },
  },
  createSubscriberSessions,
};

function createSubscriberSessions(): SubscriberSessions {
  const connections = createRouterConnections({ connectTimeoutMs: CONNECT_TIMEOUT_MS });
  return {
    async run(router, { opened, event: tell }) {
      await connections.exchange('subscriber', router, {
        method: 'GET',
        path: SESSION_PATH,
        timeoutMs: ENDLESS_MS,
        maxBytes: Number.POSITIVE_INFINITY,
        onLine: (line) => {
          const event = sessionEventSchema.parse(JSON.parse(line));
          if (event.event === 'SESSION') {
            const { session } = event;
            opened({
              async nsub(notifiers, answered) {
                const commands = notifiers.map(({ notifierId, notifierPrivateKey }, index): SentCommand => {
                  const content = { id: String(index), entity: notifierId, command: { op: 'NSUB' as const } };
                  const key = Buffer.from(notifierPrivateKey, 'base64url');
                  return { ...content, signature: signCommand({ router: router.keyHash, ...content }, key) };
                });
                const { blocks } = packBlocks(commands, { blockBytes: BLOCK_BYTES.smp });
                await connections.exchange('subscriber', router, {
                  method: 'POST',
                  path: commandsPath('smp'),
                  body: JSON.stringify({ version: OLDEST_VERSION.smp, session, blocks }),
                  timeoutMs: COMMAND_TIMEOUT_MS,
                  maxBytes: Number.POSITIVE_INFINITY,
                  onLine: (answerLine) => {
                    const { id, answer } = answerLineSchema.parse(JSON.parse(answerLine));
                    const parsed = smpAnswerSchema.parse(answer);
                    const error = parsed.op === 'ERR' ? nameOf(parsed).slice('ERR '.length) : undefined;
                    answered(commands[Number(id)]!.entity!, error);
                  },
                });
              },
            });
          } else if (event.event !== 'MSG') tell(event);
        },
      });
    },
    close: () => connections.close(),
  };
}
