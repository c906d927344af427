/**
 * The session of docs/operate/replay-and-cancel.md in which a wrong deployment of a producer is held, cancelled and made good: the page's own
 * commands are run in its order, on fewer intents, and must say what the page shows.
 */
import { readFileSync } from 'node:fs';
import type { NotificationIntent } from '../../client/notificationintent.ts';
import { newGameTurnReady, newLobbyInviteExpired, publishIntent } from '../../client/notificationintent.ts';
import type { CliResult } from '../command-line.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { fleetOfTests } from '../service-process.ts';

const WRONG = 2_000;
const OTHERS = 100;
const RIGHT = 50;
/** Of the page: what the right ones are published by. */
const FIXED = '# the fixed program starts';
const NOTHING_LEFT = 'error: no notification that is under way or has not begun matches';

const slot = slotOfTests();
const bench = cliOfTests(slot);
const fleet = fleetOfTests(() => slot);
beforeAll(() => fleet.start());

interface Step {
  command: string;
  output: string[];
}

/** What is typed, and what is shown then. */
function sessionOf(page: string): Step[] {
  const [, section = ''] = page.split(/^## A wrong deployment$/m);
  const lines = [...section.split(/^## /m)[0]!.matchAll(/^```console\n([\s\S]*?)^```$/gm)].flatMap(
    ([, code]) => code!.trimEnd().split('\n'),
  );
  const steps: Step[] = [];
  for (const line of lines) {
    if (line.startsWith('$ ')) steps.push({ command: line.slice(2), output: [] });
    else if (line !== '…') steps.at(-1)!.output.push(line);
  }
  return steps;
}

/** How many, when and by whom is another matter, and the page has no links. */
const withoutFigures = (line: string): string =>
  line
    .replaceAll(/https?:\/\/\S+|LINK$/g, '')
    .replaceAll(/\b(cancel|replay)-[\da-f-]{19}/g, '$1-ID')
    .replaceAll(/\bcli:[\w-]+/g, 'cli:NAME')
    .replaceAll(/[\d-]+T[\d:.]+Z|\d{13}-\d+/g, 'N')
    .replaceAll(/\d+(\.\d+)?( (ms|s|min))?/g, 'N')
    .replaceAll(/\s+/g, ' ')
    .trim();

const publishMany = (count: number, one: (n: number) => NotificationIntent): Promise<string[]> =>
  Promise.all(Array.from({ length: count }, (_, n) => publishIntent(slot.redis, one(n))));

const turn = (key: string, turnNumber: number) =>
  newGameTurnReady({
    ...{ idempotencyKey: key, occurredAt: Date.now(), recipientUserIds: ['user-1'] },
    payload: { game_id: 'game-7', game_name: 'Andromeda', turn_number: turnNumber },
  });

/** How the routes of these stand. */
async function statusesOf(ids: string[]): Promise<Record<string, number>> {
  const { rows } = await slot.db.query<{ status: string; count: number }>(
    'SELECT status, count(*)::int AS count FROM notification.routes WHERE notification_id = ANY ($1) GROUP BY 1',
    [ids],
  );
  return Object.fromEntries(rows.map(({ status, count }) => [status, count]));
}

async function type(command: string): Promise<CliResult> {
  const [program, ...args] = command.split(' ');
  expect(program).toBe('galaxy-notify');
  return bench.cli(args);
}

/** Types a command: it says all that the page shows. What finds nothing in the end is repeated with what is done before. */
async function follow({ command, output }: Step, before: Step | undefined): Promise<void> {
  let result = await type(command);
  for (let times = 0; output.includes(NOTHING_LEFT) && result.code === 0 && times < 3; times += 1) {
    await type(before!.command);
    result = await type(command);
  }
  const { stdout, stderr } = result;
  const said = `${stdout}${stderr}`.split('\n').map(withoutFigures);
  const missing = output.map(withoutFigures).filter((line) => line !== '' && !said.includes(line));
  expect({ command, missing, said: missing.length > 0 ? said : [] }).toEqual({
    ...{ command, missing: [], said: [] },
  });
}

test('U2 I26 the session of the pages holds, cancels and makes good what a producer got wrong, and harms no other producer', async () => {
  const steps = sessionOf(readFileSync('docs/operate/replay-and-cancel.md', 'utf8'));
  expect(steps.length).toBeGreaterThan(5);
  const wrong = publishMany(WRONG, (n) => turn(`wrong/${n}`, 0));
  const others = publishMany(OTHERS, (n) =>
    newLobbyInviteExpired({
      ...{ idempotencyKey: `other/${n}`, occurredAt: Date.now(), recipientUserIds: ['user-2'] },
      payload: {
        ...{ game_id: 'game-8', game_name: 'Borealis' },
        ...{ invitee_user_id: 'user-3', invitee_name: 'Camille' },
      },
    }),
  );
  const wrongIds = await wrong;
  await eventually('a recipient to notice', async () => ((await statusesOf(wrongIds))['published'] ?? 0) > 0);
  let publishedBefore = 0;
  let rightIds: string[] = [];
  for (const [index, step] of steps.entries()) {
    if (step.command === FIXED) {
      publishedBefore = (await statusesOf(wrongIds))['published'] ?? 0;
      rightIds = await publishMany(RIGHT, (n) => turn(`right/${n}`, 54));
      await eventually('right ones that are held', async () => {
        const { pending = 0 } = await statusesOf(rightIds);
        return pending === 2 * RIGHT;
      });
      continue;
    }
    await follow(step, steps[index - 1]);
  }
  await eventually('all right ones', async () => {
    const { published = 0 } = await statusesOf(rightIds);
    return published === 2 * RIGHT;
  });
  const otherIds = await others;
  await eventually('those of others, which waited behind what had been begun', async () => {
    const { published = 0 } = await statusesOf(otherIds);
    return published === OTHERS;
  });
  expect(await statusesOf(otherIds)).toEqual({ published: OTHERS, skipped: OTHERS });
  const { pending, failed, published = 0 } = await statusesOf(wrongIds);
  expect({ pending, failed, published }).toEqual({ published: publishedBefore });
  expect(published).toBeLessThan(2 * WRONG);
}, 600_000);
