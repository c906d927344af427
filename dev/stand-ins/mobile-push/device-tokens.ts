/**
 * `public.device_token` for a laptop and for tests. In production the table belongs to another service, and the
 * migrations leave it alone.
 */
import pg from 'pg';

/** One device each of Android, iOS and the web, for a user whom the stand-in User Service knows. */
const SAMPLES = `
  INSERT INTO public.device_token ("userId", token, platform)
  VALUES ('user-1', 'sample-token-android', 'android'),
         ('user-1', 'sample-token-ios', 'ios'),
         ('user-1', 'sample-token-web', 'web')`;

const CREATE = `
  CREATE TABLE public.device_token (
    id         uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    "userId"   text        NOT NULL,
    token      text        NOT NULL,
    platform   text,
    created_at timestamptz NOT NULL DEFAULT now()
  );
  CREATE INDEX device_token_user_id_idx ON public.device_token ("userId");`;

/**
 * Creates the table, unless it is there.
 *
 * @param options.samples false leaves it empty.
 */
export async function createDeviceTokens(dsn: string, { samples = true } = {}): Promise<void> {
  const client = new pg.Client({ connectionString: dsn });
  await client.connect();
  try {
    const { rows } = await client.query<{ missing: boolean }>(
      "SELECT to_regclass('public.device_token') IS NULL AS missing",
    );
    if (!rows[0]?.missing) return;
    await client.query(samples ? `${CREATE}${SAMPLES}` : CREATE);
  } finally {
    await client.end();
  }
}
