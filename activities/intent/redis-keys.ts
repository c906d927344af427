/**
 * A value as one segment of a Redis key: base64url, so that no value can end its segment (seed "Redis
 * runtime-coordination state").
 */
export const keySegment = (value: string): string => Buffer.from(value, 'utf8').toString('base64url');
