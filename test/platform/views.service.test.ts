/** `views`: lists of the Web UI, whose queries Temporal takes and whose links say the same. */
import type { View } from '../../client/resources.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually, operatorOf, slotOfTests } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';

const slot = slotOfTests();
const program = cliOfTests(slot);
beforeAll(() => slot.startService({ NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '1' }));

const idsOf = async (query: string): Promise<string[]> => {
  const ids: string[] = [];
  for await (const { workflowId } of slot.client.workflow.list({ query })) ids.push(workflowId);
  return ids;
};

test('U12 each view is a query that Temporal takes, and lists what its name says', async () => {
  await slot.redis.set('gateway:client-events', 'not a stream');
  const id = await publishTurn(slot.redis, 'dies');
  const queries = Object.fromEntries(
    operatorOf(slot)
      .views()
      .map(({ name, query }) => [name, query]),
  );
  await eventually('the dead letter in its view', async () =>
    (await idsOf(queries['Dead letters']!)).some((workflowId) => workflowId.includes(id)),
  );
  // The dead letter is shown before the route that started it has closed.
  const counts = await eventually('the failure in its view', async () => {
    const found = Object.fromEntries(
      await Promise.all(
        Object.entries(queries).map(
          async ([name, query]) => [name, (await slot.client.workflow.count(query)).count] as const,
        ),
      ),
    );
    return found['Failures of every kind']! > 0 ? found : undefined;
  });
  // Of the workflows that run as long as the service: none of these is a dead letter, an operation or a push.
  expect(counts).toMatchObject({
    'Open operations': 0,
    'Waiting: mobile pushes': 0,
    'Routes that are held': 0,
    'Mobile pushes that failed': 0,
  });
});

test('U12 the command prints links that open a view, and with --save links that save it too', async () => {
  const { value } = await program.json<{ items: View[] }>(['views']);
  for (const { name, query, link, saveLink } of value.items) {
    const [opens, saves] = [new URL(link!), new URL(saveLink!)];
    expect(opens.pathname).toMatch(/^\/namespaces\/[\w.-]+\/workflows$/);
    expect(Object.fromEntries(opens.searchParams)).toEqual({ query });
    expect(Object.fromEntries(saves.searchParams)).toEqual({ query, savedQuery: name });
  }
  expect((await program.cli(['views'])).stdout).toContain(value.items[0]!.link);
  expect((await program.cli(['views', '--save'])).stdout).toContain(value.items[0]!.saveLink);
  expect(operatorOf(slot).views()[0]).not.toHaveProperty('link');
});
