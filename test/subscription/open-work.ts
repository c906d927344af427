/** Subscriptions that are under way: an agent with a verified token, whose connections wait for a silent router. */
import { routerAddressText } from '../../api/subscription/router-address.ts';
import type { Slot } from '../harness.ts';
import { eventually } from '../harness.ts';
import type { OpenWork } from '../open-work.ts';
import { agreement } from './agreement.ts';
import { takeTokenAgent } from './token-agent.ts';

const LIMIT_MS = 90_000;

export async function openSubscriptionWork(slot: Slot): Promise<OpenWork> {
  const agent = await takeTokenAgent({ slot });
  const tokens = agent.tokensOf();
  const [smp] = agent.routers.smp;
  const [ntf] = agent.routers.ntf;
  let active = '';
  let waiting: string[] = [];
  let subscriptionBefore: string | null = null;
  const registrations = () => ntf!.calls.filter(({ op }) => op === 'TNEW' || op === 'TVFY').length;

  return {
    role: 'subscription',
    env: {
      ...agent.env,
      NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: routerAddressText(ntf!.address, 'ntf'),
      // A key whose answer is late on a busy machine would be made twice.
      NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '5s',
    },

    async begin() {
      await agent.activate(tokens, 'INSTANT');
      const server = smp!.address;
      [active = ''] = await agent.create([{ userId: 1, server }]);
      await agent.active([active]);
      subscriptionBefore = (await agent.record(active))!.ntf_sub_id;

      smp!.fail({ failure: { kind: 'silence' }, subject: 'NKEY' });
      waiting = await agent.create([
        { userId: 1, server },
        { userId: 2, server },
      ]);
      const keysAsked = () => smp!.calls.filter(({ op }) => op === 'NKEY').length;
      await eventually('the router to be asked for their keys', async () => keysAsked() > waiting.length);
      expect((await agent.workerState('ntf-smp', server)).remaining).toBeGreaterThan(0);
    },

    heal: async () => smp!.heal(),

    async finish() {
      expect(registrations()).toBe(2);
      await agent.active([active, ...waiting], LIMIT_MS);
      // One queue, one notifier and one subscription for each connection, here and at the routers.
      expect(await agreement(agent, LIMIT_MS)).toHaveLength(3);
      expect((await agent.record(active))!.ntf_sub_id).toBe(subscriptionBefore);
      expect(await agent.events()).toEqual([]);
      expect(await tokens.check()).toBe('ACTIVE');
      expect(registrations()).toBe(2);
      const { queue, isOpen } = await agent.idle();
      expect({ queue, isOpen }).toEqual({ queue: [], isOpen: true });
    },

    release: () => agent.release(),
  };
}
