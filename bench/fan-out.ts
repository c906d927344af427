/** What a route costs when an intent has many recipients: time per route, against intents for one recipient. */
import type { Mode } from './environment.ts';
import { MODES } from './environment.ts';
import { ROUTES_PER_RECIPIENT, burst } from './intent.ts';
import type { Finding, Measurement, RowSpec } from './measurement.ts';
import type { Round } from './rounds.ts';
import { interleave, medianOf } from './rounds.ts';
import { ratios } from './statistics.ts';

const RECIPIENTS = [1, 10, 100, 1_000] as const;
const FEWEST = RECIPIENTS[0];
const MOST = RECIPIENTS[RECIPIENTS.length - 1]!;
const MOST_COST = 0.2;

const shapeOf = (mode: Mode, recipients: number) => `${mode}.${recipients}`;
const ratioRow = (mode: Mode) => `fan-out.${mode}.${MOST}/${FEWEST}`;
const isFew = (recipients: number) => recipients === FEWEST;

export const fanOut: Measurement = {
  name: 'fan-out',
  meaning: 'time per route, when the same number of routes belongs to ever fewer intents',
  isQuick: true,
  rows: MODES.flatMap((mode): RowSpec[] => [
    ...RECIPIENTS.map((recipients) => ({
      name: `fan-out.${shapeOf(mode, recipients)}`,
      unit: 'ms',
      meaning: `per route, intents for ${recipients} ${isFew(recipients) ? 'recipient' : 'recipients'}`,
    })),
    {
      name: ratioRow(mode),
      unit: '',
      target: { atMost: MOST_COST },
      meaning: `cost of a route, ${MOST} recipients against ${FEWEST}`,
    },
  ]),

  async run(bench) {
    const { intents, longRounds } = bench.sizes;
    // At least one whole intent, and else as many recipients as the others have.
    const shapes = MODES.flatMap((mode) =>
      RECIPIENTS.map((recipients) => {
        const count = Math.max(1, Math.round(intents / recipients));
        return [shapeOf(mode, recipients), () => burst(bench, mode, count, recipients)] as const;
      }),
    );
    for (const mode of MODES) await burst(bench, mode, Math.ceil(intents / 2));
    const rounds = await interleave(longRounds, Object.fromEntries(shapes), bench.report);
    return MODES.flatMap((mode): Finding[] => {
      const msPerRoute = (recipients: number) =>
        rounds[shapeOf(mode, recipients)]!.map((round) => msPerRouteOf(round, recipients));
      return [
        ...RECIPIENTS.map((recipients) => ({
          ...medianOf(`fan-out.${shapeOf(mode, recipients)}`, msPerRoute(recipients)),
          details: rounds[shapeOf(mode, recipients)],
        })),
        medianOf(ratioRow(mode), ratios(msPerRoute(MOST), msPerRoute(FEWEST))),
      ];
    });
  },
};

const msPerRouteOf = ({ seconds, count }: Round, recipients: number): number =>
  (1_000 * seconds) / (count * recipients * ROUTES_PER_RECIPIENT);
