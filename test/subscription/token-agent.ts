/** The service with the role subscription, its routers, and what tests do with the tokens of its agents. */
import type { RouterAddress } from '../../activities/subscription/router/ports.ts';
import type { TokenOperationError } from '../../client/subscription/tokens.ts';
import { tokenOperations } from '../../client/subscription/tokens.ts';
import type { Service } from '../../workers/service.ts';
import { tokenWorkflowId } from '../../workflows/subscription/contract.ts';
import { eventually } from '../harness.ts';
import { ofTests } from '../of-tests.ts';
import { newDevice } from './router-agent.ts';
import { pushesTo } from './routers.ts';
import type { SubscriptionAgent } from './agent.ts';
import { AGENT, KEY_BOX, takeSubscriptionAgent } from './agent.ts';

type Device = ReturnType<typeof newDevice>;

/** What is not secret in the row of a token. */
export interface TokenRowView {
  provider: string;
  host: string;
  port: number;
  token_id: string | null;
  status: string;
  action: string | null;
  mode: string | null;
}

export type TokenAgent = Awaited<ReturnType<typeof takeTokenAgent>>;

/** The agent of a file of tests. */
export const tokenAgentOfTests = (options?: Parameters<typeof takeTokenAgent>[0]): TokenAgent =>
  ofTests(
    () => takeTokenAgent(options),
    (agent) => agent.release(),
  );

/** Takes a slot and starts routers; the service is started by `startWith`. */
export async function takeTokenAgent(options: Parameters<typeof takeSubscriptionAgent>[0] = {}) {
  const agent: SubscriptionAgent = await takeSubscriptionAgent(options);
  const { slot, routers } = agent;
  const everywhere = routers.ntf.map(({ address }) => address);

  /** The operations of one agent; tests that share a service have one each. */
  function tokensOf(agentId = AGENT) {
    const operations = tokenOperations({
      temporal: slot.client,
      db: slot.db,
      keyBox: () => KEY_BOX,
      agentId,
    });
    return {
      ...operations,
      agentId,
      device: newDevice(),
      async row(): Promise<TokenRowView | undefined> {
        const { rows } = await slot.db.query<TokenRowView>(
          'SELECT provider, host, port, token_id, status, action, mode FROM subscriptions.ntf_tokens WHERE agent_id = $1',
          [agentId],
        );
        return rows[0];
      },
      /** Where its router listens. */
      async router() {
        const row = await this.row();
        return routers.ntf.find(({ address }) => address.port === row?.port)!;
      },
      handle: slot.client.workflow.getHandle(tokenWorkflowId(agentId)),
    };
  }

  /** The content of a verification push; of so many, the one at `at`. */
  async function verification(device: Device, count = 1, at = count - 1) {
    const pushes = await eventually(`${count} verification pushes`, async () => {
      const all = pushesTo(routers.sink, device.token, 'verification');
      return all.length >= count && all;
    });
    const { nonce = '', verification: code = '' } = pushes[at]!.data;
    return { nonce, code };
  }

  return {
    ...agent,
    tokensOf,
    verification,
    /** @param ntfServers default: all. */
    startWith: (
      ntfServers: readonly RouterAddress[] = everywhere,
      env: Record<string, string> = {},
    ): Promise<Service> => agent.start(env, ntfServers),
    /** Registers and verifies. */
    async activate(
      tokens: ReturnType<typeof tokensOf>,
      mode: 'PERIODIC' | 'INSTANT' = 'PERIODIC',
      device = tokens.device,
    ) {
      const before = pushesTo(routers.sink, device.token, 'verification').length;
      await tokens.register(device, mode);
      const status = await tokens.verify(device, await verification(device, before + 1));
      expect(status).toBe('ACTIVE');
    },
  };
}

export type Tokens = ReturnType<TokenAgent['tokensOf']>;

/** Source and code of the error that an operation ends with. */
export async function errorOf(operation: Promise<unknown>): Promise<string> {
  const outcome = await operation.then(
    (value) => `no error but ${JSON.stringify(value)}`,
    (error: unknown) => error,
  );
  if (typeof outcome === 'string') return outcome;
  const { name, source, code } = outcome as TokenOperationError;
  if (name !== 'TokenOperationError') throw outcome;
  return `${source} ${code}`;
}
