/**
 * Rules of the schema `subscriptions` by which both the service and operators read its rows: which queue a connection
 * has, and what a record says is to be done next. Pure, so that programs of others can import it.
 */

/** A record says what is to be done next by a code in one of two columns: `ntf_action` or `smp_action`. */
export const ACTION_COLUMNS = {
  'ntf-create': ['N', null],
  'ntf-check': ['C', null],
  'ntf-delete': ['D', null],
  'ntf-rotate': ['R', null],
  'smp-key': [null, 'K'],
  'smp-delete': [null, 'D'],
} as const satisfies Record<string, ActionColumns>;

type ActionColumns = readonly [ntf: string | null, smp: string | null];
export type RecordAction = keyof typeof ACTION_COLUMNS;

const ACTIONS = Object.keys(ACTION_COLUMNS) as RecordAction[];

/** The action that the two columns hold; undefined without one. A constraint of the table allows nothing else. */
export function actionOf(ntfAction: string | null, smpAction: string | null): RecordAction | undefined {
  return ACTIONS.find((action) => {
    const [ntf, smp] = ACTION_COLUMNS[action];
    return ntf === ntfAction && smp === smpAction;
  });
}

/**
 * The queue of a connection, for use in a LATERAL join.
 *
 * @param of alias of a row with the columns `agent_id` and `conn_id`.
 */
export const queueOf = (of: string): string => `
  SELECT queue.queue_id::text, queue.host, queue.port, coalesce(queue.server_key_hash, server.key_hash) AS key_hash,
         queue.rcv_id, queue.rcv_private_key, queue.ntf_id, queue.ntf_private_key
    FROM subscriptions.rcv_queues AS queue
    JOIN subscriptions.smp_servers AS server USING (agent_id, host, port)
   WHERE queue.agent_id = ${of}.agent_id AND queue.conn_id = ${of}.conn_id`;

/** Makes an agent that does not exist yet. An agent that was closed stays closed. Parameter: the agent's id. */
export const ENSURE_AGENT = {
  name: 'ensure_subscription_agent',
  text: 'INSERT INTO subscriptions.agents (agent_id) VALUES ($1) ON CONFLICT DO NOTHING',
};
