/** The lists of `npm run test:mutants`, so that they do not rot, and how places of changes are found. */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { editsOf } from '../../mutants/changes.ts';
import { MUTANTS, affectedMutants } from '../../mutants/list.ts';
import type { Mutant, Suite } from '../../mutants/mutant.ts';
import { WRONGS, service, unit, workflow } from '../../mutants/mutant.ts';
import { changed } from '../../mutants/places.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');

test.each(MUTANTS.map((mutant) => [mutant.id, mutant] as const))(
  '%s changes one place of a file of the product',
  (_, mutant) => {
    expect(mutant.change(read(mutant.file))).not.toBe(read(mutant.file));
    expect(mutant.file).toMatch(/^(activities|api|catalog|cli|client|config|migrations|workers|workflows)\//);
  },
);

test('ids are unique, and there are enough of every kind', () => {
  const ids = MUTANTS.map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  expect(ids.length).toBeGreaterThanOrEqual(60);
  expect([...WRONGS].filter((wrong) => !MUTANTS.some((mutant) => mutant.wrong === wrong))).toEqual([]);
});

test('suites are there, with the tests that are named', () => {
  const missing = MUTANTS.filter(({ suite: { tier, file, test: title } }) => {
    if (!file.endsWith(`.${tier}.test.ts`) || !existsSync(path.join(ROOT, file))) return true;
    return title !== undefined && !read(file).includes(title);
  });
  expect(missing.map(({ id }) => id)).toEqual([]);
});

test('survivors are few, and each has its reason', () => {
  const survivors = MUTANTS.filter(({ survives }) => survives !== undefined);
  expect(survivors.length).toBeLessThanOrEqual(MUTANTS.length * 0.05);
  expect(survivors.filter(({ survives }) => survives!.length < 20)).toEqual([]);
});

test('mutants of changed files and suites are chosen, without those that may survive, in an order of the commit', () => {
  const [mutant] = MUTANTS as [Mutant];
  const of = (id: string, file: string, suite: Suite, more = {}) => ({ ...mutant, id, file, suite, ...more });
  const mutants = [
    of('statement', 'rows.ts', service('rows')),
    of('loop', 'loop.ts', workflow('loop')),
    of('suite', 'other.ts', workflow('loop')),
    of('equivalent', 'loop.ts', workflow('loop'), { survives: 'Nothing reads it.' }),
    of('unchanged', 'other.ts', unit('other')),
  ];
  const files = new Set(['rows.ts', 'loop.ts', 'test/loop.workflow.test.ts']);
  const orders = [...'abcdefgh'].map((commit) =>
    affectedMutants(mutants, files, commit)
      .map(({ id }) => id)
      .join(' '),
  );
  expect(new Set(orders)).toEqual(new Set(['loop suite statement', 'suite loop statement']));
});

const SOURCE = `export function pay(amount: number, user?: User) {
  if (user && amount > 0) send(limited(amount, 5), user);
  return { amount, limit: 5 };
}
const FIND = \`
  SELECT id FROM payments
   WHERE amount >= $1 AND (user_id = $2
         OR note LIKE 'a AND b') AND at BETWEEN $3 AND $4\`;
const SCRIPT = \`
  local paid = redis.call('GET', KEYS[1])
  if paid then return paid end
  redis.call('SET', KEYS[1], 1)\`;
`;

test.each([
  [{ in: 'pay', node: '&&', replace: '$<right>' }, 'user && amount > 0', 'amount > 0'],
  [
    { in: 'pay', node: 'limited()', replace: '$<arguments.0> + $&' },
    'limited(amount, 5)',
    'amount + limited(amount, 5)',
  ],
  [{ in: 'pay', node: 'amount:', replace: '' }, '{ amount, limit', '{  limit'],
  [{ in: 'pay', node: 'NumericLiteral 3', replace: '6' }, 'limit: 5', 'limit: 6'],
  [{ in: 'FIND', text: "OR note LIKE 'a AND b')", replace: ')' }, "OR note LIKE 'a AND b')", ')'],
  [{ in: 'FIND', text: '$2 OR', replace: '$2 AND' }, '$2\n         OR', '$2 AND'],
])('%o changes its place and nothing else', (change, before, after) => {
  expect(changed('pay.ts', SOURCE, change)).toBe(SOURCE.replace(before, () => after));
});

test.each([
  [{ in: 'refund', node: '&&' }, "there is no declaration 'refund'"],
  [{ in: 'pay', node: '||' }, "'pay' has 0 nodes '||', wanted is '||'"],
  [{ in: 'pay', node: 'NumericLiteral' }, "'pay' has 3 nodes 'NumericLiteral', wanted is 'NumericLiteral'"],
  [{ in: 'FIND', text: 'AND' }, "'FIND' has the text 'AND' 4 times"],
])('%o is not found', (place, problem) => {
  expect(() => changed('pay.ts', SOURCE, { ...place, replace: '' })).toThrow(problem);
});

test('places of generated mutants have ids that tell no text, and are changed alone', () => {
  const edits = [...editsOf('pay.ts', SOURCE)].map(([id, { start, end, text }]) => [
    id,
    SOURCE.slice(start, end),
    text,
  ]);
  expect(edits).toEqual([
    ['pay.ts:pay:negated-condition-1', 'user && amount > 0', '!(user && amount > 0)'],
    ['pay.ts:pay:omitted-conjunct-1', 'user', 'true'],
    ['pay.ts:pay:omitted-conjunct-2', 'amount > 0', 'true'],
    ['pay.ts:pay:off-by-one-1', '>', '>='],
    ['pay.ts:pay:omitted-call-1', 'send(limited(amount, 5), user);', ';'],
    ['pay.ts:FIND:sql-omitted-conjunct-1', 'amount >= $1', '(amount >= $1 OR true)'],
    ['pay.ts:FIND:sql-off-by-one-1', '>=', '>'],
    [
      'pay.ts:FIND:sql-omitted-conjunct-2',
      "(user_id = $2\n         OR note LIKE 'a AND b')",
      "((user_id = $2\n         OR note LIKE 'a AND b') OR true)",
    ],
    ['pay.ts:FIND:sql-omitted-conjunct-3', 'at BETWEEN $3 AND $4', '(at BETWEEN $3 AND $4 OR true)'],
    ['pay.ts:SCRIPT:lua-negated-condition-1', 'paid', 'not (paid)'],
    ['pay.ts:SCRIPT:lua-omitted-line-1', 'if paid then return paid end', ''],
    ['pay.ts:SCRIPT:lua-omitted-line-2', "redis.call('SET', KEYS[1], 1)", ''],
  ]);
});
