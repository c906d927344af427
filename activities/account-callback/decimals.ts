/** Decimals of any length, exactly: whole numbers of a power of ten. Pure. */

/** `digits` of `10 ** -decimals`. */
export interface Decimal {
  digits: bigint;
  /** As few as it takes. */
  decimals: number;
}

/** Decimals of what comes in (api/account-callback/input.ts); a value, a sum of products, has twice as many. */
const MAX_DECIMALS = 18;

/** 10 to the power of so many decimals: those of a value at most. */
export const POWERS_OF_TEN: readonly bigint[] = Array.from(
  { length: 2 * MAX_DECIMALS + 1 },
  (_, power) => 10n ** BigInt(power),
);

/** @throws RangeError for what is no decimal. */
export function decimalOf(text: string): Decimal {
  const [, sign, whole, fraction = ''] = /^(-?)(\d+)(?:\.(\d{1,18}))?$/.exec(text) ?? [];
  if (whole === undefined) throw new RangeError('a price, cash or coefficient is no decimal');
  let decimals = fraction.length;
  while (decimals > 0 && fraction[decimals - 1] === '0') decimals -= 1;
  return { digits: BigInt(sign + whole + fraction.slice(0, decimals)), decimals };
}

/** Without zeros at its end. */
export function textOf({ digits, decimals }: Decimal): string {
  const all = (digits < 0n ? -digits : digits).toString().padStart(decimals + 1, '0');
  const [whole, fraction] = [all.slice(0, all.length - decimals), all.slice(all.length - decimals)];
  const shown = fraction.replace(/0+$/, '');
  return `${digits < 0n ? '-' : ''}${whole}${shown === '' ? '' : `.${shown}`}`;
}

/** The whole number that it is with so many decimals, which are no fewer than its own. */
export const withDecimals = ({ digits, decimals }: Decimal, wanted: number): bigint =>
  digits * POWERS_OF_TEN[wanted - decimals]!;
