/**
 * Symbol configuration as it crosses the process border (push-openapi.yaml):
 * what is pushed to collectors and alerts, and the file that names them.
 */
import { z } from 'zod';
import { jsonIn } from '../text.ts';
import { webhookIdOf } from '../webhooks.ts';

export const TARGET_KINDS = ['price_collector', 'price_alert'] as const;
export type TargetKind = (typeof TARGET_KINDS)[number];

/** More than any deployment has; a file with more is a mistake. */
const MAX_TARGETS = 1_000;

const name = z.string().regex(/^[\x21-\x7e]{1,64}$/, 'must be 1 to 64 printable ASCII characters');

/** What a collector needs to know to convert prices. */
export const symbolMetadataSchema = z.object({
  symbol: name,
  ticker: name,
  decimals: z.int().min(0).max(30),
  priceScale: z.int().min(1),
});
export type SymbolMetadata = z.output<typeof symbolMetadataSchema>;

/** Starts at 1 and grows with every change. */
const version = z.int().min(1);

/**
 * Bodies of a push. An empty list fits them, so that a receiver can say that this is what it refuses.
 */
export const PUSH_SCHEMAS = {
  price_collector: z.object({ version, symbols: z.array(symbolMetadataSchema) }),
  price_alert: z.object({ version, symbols: z.array(name) }),
} as const satisfies Record<TargetKind, z.ZodType>;

export type SymbolPush<Kind extends TargetKind = TargetKind> = z.output<(typeof PUSH_SCHEMAS)[Kind]>;

/** What a target of this kind gets: collectors all of it, alerts the names alone. */
export function pushBodyOf(
  kind: TargetKind,
  versionOfList: number,
  symbols: readonly SymbolMetadata[],
): SymbolPush {
  return kind === 'price_collector'
    ? { version: versionOfList, symbols: [...symbols] }
    : { version: versionOfList, symbols: symbols.map(({ symbol }) => symbol) };
}

const WEBHOOK_KIND = 'symbols';

/** Header `webhook-id`: the same for each push of a version to a target. */
export const pushWebhookId = (target: string, versionOfList: number): string =>
  webhookIdOf(WEBHOOK_KIND, `${target}/${versionOfList}`);

/** Whether it may be the id of a push: the signature of another webhook is refused. */
export const isPushWebhookId = (id: string): boolean => id.startsWith(`${WEBHOOK_KIND}_`);

const olderVersionSchema = z.object({ error: z.object({ heldVersion: version }) });

/**
 * What a receiver holds that answers 409.
 *
 * @param body of its answer: anything.
 * @returns undefined when it does not say.
 */
export function heldVersionIn(body: string | undefined): number | undefined {
  return olderVersionSchema.safeParse(jsonIn(body)).data?.error.heldVersion;
}

const targetSchema = z.strictObject({
  name: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/, 'must be letters, digits, dots, dashes and underscores'),
  kind: z.enum(TARGET_KINDS, `must be one of ${TARGET_KINDS.join(', ')}`),
  geo: z.string().regex(/^[a-z0-9][a-z0-9-]{0,31}$/, 'must be lower-case letters, digits and dashes'),
  url: z
    .url({ protocol: /^https?$/, error: 'must be an http or https URL' })
    // They are stored and shown to operators.
    .refine((url) => !/:\/\/[^/]*@/.test(url), 'must not hold a user or password'),
});
/** One receiver of pushes. */
export type SymbolTarget = z.output<typeof targetSchema>;

/** The whole file of targets. */
export const symbolTargetsSchema = z
  .array(targetSchema)
  .min(1, 'must name at least one target')
  .max(MAX_TARGETS, `must name at most ${MAX_TARGETS} targets`)
  .superRefine((targets, context) => {
    for (const field of ['name', 'url'] as const) {
      for (const [index, { [field]: value }] of targets.entries()) {
        if (targets.findIndex((target) => target[field] === value) === index) continue;
        context.addIssue({ code: 'custom', path: [index, field], message: `${value} is used twice` });
      }
    }
  });
