/**
 * What each dashboard shows. Rates are a second and over all processes; gauges are the same figure from every process,
 * so their maximum is taken. A test holds the names against the metrics that the service has.
 */

export interface Panel {
  title: string;
  /** What it says, and when it is fine. */
  about: string;
  kind?: 'timeseries' | 'stat';
  /** Grafana's id of a unit. */
  unit?: string;
  queries: [expression: string, legend: string][];
  thresholds?: readonly [warn: number, alarm: number];
}

export interface Dashboard {
  /** Also the name of its file. */
  uid: string;
  title: string;
  about: string;
  panels: Panel[];
}

const PER_SECOND = 'cps';

/** Of a counter by some of its labels, as a rate. */
const rate = (counter: string, by: string, selector = ''): string =>
  `sum by (${by}) (rate(${counter}${selector}[$__rate_interval]))`;
const legend = (...labels: string[]): string => labels.map((label) => `{{${label}}}`).join(' ');
const rates = (title: string, about: string, counter: string, by: string[], selector?: string): Panel => ({
  title,
  about,
  unit: PER_SECOND,
  queries: [[rate(counter, by.join(', '), selector), legend(...by)]],
});
/** Since the beginning of the shown time, as one number. */
const total = (
  title: string,
  about: string,
  counter: string,
  thresholds: Panel['thresholds'] & {},
): Panel => ({
  title,
  about,
  kind: 'stat',
  queries: [[`round(sum(increase(${counter}[$__range]))) or vector(0)`, '']],
  thresholds,
});
const quantiles = (title: string, about: string, histogram: string, by: string): Panel => ({
  title,
  about,
  unit: 'ms',
  queries: [0.5, 0.95].map((share): [string, string] => [
    `histogram_quantile(${share}, sum by (le, ${by}) (rate(${histogram}_milliseconds_bucket[$__rate_interval])))`,
    `{{${by}}} p${share * 100}`,
  ]),
});

const AGE_OF_INTAKE: Panel = {
  title: 'Oldest intent that the reader has not taken',
  about: 'Age of the first entry behind the offset; 0 when the stream is read. Fine below a second.',
  unit: 'ms',
  queries: [['max(notification_intent_stream_oldest_unprocessed_age_ms_milliseconds)', 'age']],
};
const OLDEST_WAITING: Panel = {
  title: 'Oldest intent that waits',
  about:
    'How long ago the oldest intent was read that is neither accepted nor refused; see `galaxy-notify intents waiting`.',
  unit: 'ms',
  queries: [['max(notification_intent_acceptance_oldest_age_ms_milliseconds)', 'age']],
};
const OVERDUE: Panel = {
  title: 'Oldest due route',
  about: 'How long a route has been due for its next attempt; grows while a channel is paused.',
  unit: 'ms',
  queries: [['max by (channel) (notification_route_schedule_oldest_age_ms_milliseconds)', legend('channel')]],
};

const overview: Dashboard = {
  uid: 'galaxy-notify-overview',
  title: 'galaxy-notify: overview',
  about: 'One row for each kind of work: how much is done, what fails, what waits.',
  panels: [
    rates('Intents', 'Decided intents by outcome.', 'notification_intent_outcomes_total', ['outcome']),
    AGE_OF_INTAKE,
    total('Dead letters', 'Routes that were given up.', 'notification_route_dead_letters_total', [1, 50]),
    rates(
      'Attempts to publish',
      'By channel and result; failed ones spend budget.',
      'notification_route_publish_attempts_total',
      ['channel', 'result'],
    ),
    {
      title: 'Routes that wait',
      about: 'Routes with a next attempt.',
      queries: [['max by (channel) (notification_route_schedule_depth)', legend('channel')]],
    },
    OVERDUE,
    rates('Mobile push jobs', 'By how they ended.', 'notification_mobile_jobs_total', ['status']),
    rates('Symbol pushes', 'To targets, by result.', 'notification_symbols_pushes_total', ['result']),
    rates('Callbacks', 'First attempts, by result.', 'notification_callbacks_emissions_total', [
      'kind',
      'result',
    ]),
    rates('Work on subscriptions', 'Attempts, by how they ended.', 'notification_subscriptions_work_total', [
      'result',
    ]),
    {
      title: 'Subscriptions that are due',
      about: 'Something is to be done about them now.',
      queries: [['max by (pool) (notification_subscriptions_due)', legend('pool')]],
    },
    quantiles(
      'Workflow tasks wait for a worker',
      'From being scheduled to being begun. Add processes when it stays above some hundred ms.',
      'temporal_workflow_task_schedule_to_start_latency',
      'task_queue',
    ),
  ],
};

const intent: Dashboard = {
  uid: 'galaxy-notify-intent',
  title: 'galaxy-notify: notifications',
  about: 'From the intent stream to the entries for Gateway and Mail Service.',
  panels: [
    rates('Intents by type', 'Accepted intents.', 'notification_intent_outcomes_total', [
      'notification_type',
    ]),
    rates(
      'Intents by outcome',
      'A duplicate has no effect; a rejected one is a malformed intent.',
      'notification_intent_outcomes_total',
      ['outcome', 'audience_kind'],
    ),
    AGE_OF_INTAKE,
    OLDEST_WAITING,
    {
      title: 'Intents that wait',
      about: 'Tried, and neither accepted nor refused yet.',
      queries: [['max(notification_intent_acceptance_waiting)', 'intents']],
    },
    rates(
      'Recipients without e-mail',
      'The User Service has no usable answer about them.',
      'notification_intent_unusable_recipients_total',
      ['notification_type'],
    ),
    rates('Malformed intents', 'By producer and reason.', 'notification_intent_malformed_total', [
      'producer',
      'failure_code',
    ]),
    {
      title: 'Malformed intents kept',
      about: 'Rows until retention; 100,000 stands for more.',
      queries: [['max(notification_intent_malformed_rows)', 'rows']],
    },
    total(
      'Findings on the stream',
      'Losses and risks; see `galaxy-notify bridge status`.',
      'notification_intent_stream_findings_total',
      [1, 1],
    ),
    rates(
      'Outbound streams suspected',
      'Times that an outbound stream may have lost entries, after which its routes are checked.',
      'notification_outbound_stream_suspicions_total',
      ['stream'],
    ),
    {
      title: 'Repair under way',
      about: 'How long an outbound stream has been suspected of a loss; 0 when none is.',
      unit: 'ms',
      queries: [['max(notification_outbound_stream_suspect_age_ms_milliseconds)', 'age']],
    },
    rates(
      'Work taken up',
      'Routes and intents that had lost their workflow.',
      'notification_reconciliation_taken_up_total',
      ['what'],
    ),
    rates(
      'Entries restored',
      'Entries that an outbound stream had lost and that were handed off again.',
      'notification_outbound_stream_restored_entries_total',
      ['channel'],
    ),
    rates(
      'Outcomes told',
      'Events about intents that were appended to their stream, repeats included.',
      'notification_outcomes_relayed_total',
      ['kind'],
    ),
    {
      title: 'Outcomes that wait',
      about: 'How long the oldest event for producers has waited to be relayed; 0 when none does.',
      unit: 'ms',
      queries: [['max(notification_outcomes_oldest_waiting_age_ms_milliseconds)', 'age']],
    },
    {
      title: 'Outboxes of producers: oldest row',
      about:
        'How long the oldest intent has waited to be published, and to be passed by the service; by producer. Fine below a second, and a few.',
      unit: 'ms',
      queries: [
        ['max by (job) (notification_outbox_oldest_pending_age_ms_milliseconds)', '{{job}} to be published'],
        ['max by (job) (notification_outbox_oldest_published_age_ms_milliseconds)', '{{job}} to be passed'],
      ],
    },
    {
      title: 'Outboxes of producers: rows',
      about: 'By producer and state. Those that are set aside wait for a person.',
      queries: [['max by (job, state) (notification_outbox_rows)', legend('job', 'state')]],
    },
    {
      title: 'Outboxes of producers: what relays do',
      about: 'Rows that were published, passed, lost by Redis, set aside, and deleted after their time.',
      unit: PER_SECOND,
      queries: ['published', 'passed', 'lost', 'set_aside', 'deleted'].map((what): [string, string] => [
        rate(`notification_outbox_${what}_total`, 'job'),
        `{{job}} ${what.replace('_', ' ')}`,
      ]),
    },
    rates('Lookups in the User Service', 'By result.', 'notification_user_enrichment_attempts_total', [
      'result',
    ]),
    rates(
      'Published',
      'Entries handed off.',
      'notification_route_publish_attempts_total',
      ['channel'],
      '{result="published"}',
    ),
    rates(
      'Failed attempts',
      'Each spends budget.',
      'notification_route_publish_attempts_total',
      ['channel', 'failure_classification'],
      '{result="failed"}',
    ),
    rates(
      'Retries',
      'Failed attempts after which another is scheduled.',
      'notification_route_retries_total',
      ['channel', 'failure_classification'],
    ),
    rates('Dead letters', 'Routes that have spent their budget.', 'notification_route_dead_letters_total', [
      'channel',
      'failure_classification',
    ]),
    rates(
      'Skipped',
      'Routes that expired, or were throttled, collapsed, or without a usable address.',
      'notification_route_skipped_total',
      ['channel', 'reason'],
    ),
    rates('Replays', 'Dead-lettered routes that were opened again.', 'notification_route_replays_total', [
      'channel',
    ]),
    rates(
      'Deferrals',
      'Attempts that spent nothing: paused, leased, a server away.',
      'notification_route_deferrals_total',
      ['channel', 'reason'],
    ),
    {
      title: 'Routes that wait',
      about: 'Routes with a next attempt, paused ones included.',
      queries: [['max by (channel) (notification_route_schedule_depth)', legend('channel')]],
    },
    OVERDUE,
    rates('Probes', 'Requests to /healthz and /readyz.', 'notification_internal_http_requests_total', [
      'path',
      'status',
    ]),
  ],
};

const mobilePush: Dashboard = {
  uid: 'galaxy-notify-mobile-push',
  title: 'galaxy-notify: mobile pushes',
  about: 'From jobs of the stream to answers of FCM.',
  panels: [
    rates('Jobs', 'By how they ended.', 'notification_mobile_jobs_total', ['status']),
    {
      title: 'Oldest job that is sent',
      about: 'Since it came or was replayed; grows while FCM does not answer.',
      unit: 'ms',
      queries: [['max(notification_mobile_oldest_pending_age_ms_milliseconds)', 'age']],
    },
    rates('Sends', 'Attempts to send to one device.', 'notification_mobile_sends_total', ['result']),
    rates(
      'Answers of FCM',
      'Without those that were sent.',
      'notification_mobile_sends_total',
      ['code'],
      '{result!="sent"}',
    ),
    rates('Malformed jobs', 'By reason.', 'notification_mobile_malformed_total', ['failure_code']),
    rates(
      'Given up',
      'Sends and entries after their last attempt.',
      'notification_mobile_max_retries_total',
      ['what'],
    ),
    total(
      'Lost entries',
      'Deleted while they were being taken.',
      'notification_mobile_entries_lost_total',
      [1, 1],
    ),
  ],
};

const symbolConfig: Dashboard = {
  uid: 'galaxy-notify-symbol-config',
  title: 'galaxy-notify: symbols',
  about: 'Pushes of symbol configuration to collectors and alerts.',
  panels: [
    rates('Pushes by result', 'To single targets.', 'notification_symbols_pushes_total', ['result']),
    rates(
      'Failed pushes',
      'By place and kind of target.',
      'notification_symbols_pushes_total',
      ['geo', 'kind', 'result'],
      '{result!="acknowledged"}',
    ),
    rates('Rounds', 'Complete when every target acknowledged.', 'notification_symbols_rounds_total', [
      'scope',
      'result',
    ]),
    {
      title: 'Targets behind',
      about: 'Without the newest list, or the last push failed; back at 0 soon after a change.',
      queries: [['max by (geo) (notification_symbols_targets_behind)', legend('geo')]],
    },
    {
      title: 'Oldest failing target',
      about: 'For how long every push to some target has failed.',
      unit: 'ms',
      queries: [['max by (geo) (notification_symbols_oldest_failing_age_ms_milliseconds)', legend('geo')]],
    },
    total(
      'Empty lists',
      'Times that no symbol was enabled.',
      'notification_symbols_empty_lists_total',
      [1, 1],
    ),
  ],
};

const accountCallback: Dashboard = {
  uid: 'galaxy-notify-account-callback',
  title: 'galaxy-notify: account callbacks',
  about: 'From extremes of account values to callbacks of the portfolio service.',
  panels: [
    rates('First attempts', 'By kind and result.', 'notification_callbacks_emissions_total', [
      'kind',
      'result',
    ]),
    rates('Retries', 'Replays included.', 'notification_callbacks_retries_total', ['kind', 'result']),
    total(
      'Dropped',
      'After their last retry; callbacks replay.',
      'notification_callbacks_dropped_total',
      [1, 1],
    ),
    rates('Inputs', 'Entries taken, by kind.', 'notification_callbacks_inputs_total', ['kind']),
    rates('Malformed inputs', 'By reason.', 'notification_callbacks_malformed_inputs_total', [
      'failure_code',
    ]),
    {
      title: 'Waiting hours',
      about:
        'How long the oldest hourly callback has waited for its first attempt; some minutes at the most.',
      unit: 'ms',
      queries: [['max by (shard) (notification_callbacks_behind_ms_milliseconds)', legend('shard')]],
    },
    {
      title: 'Overdue trackings',
      about: 'Users whose last day has not come in time: daily callbacks wait for them; callbacks overdue.',
      queries: [['max by (shard) (notification_callbacks_overdue_trackings)', legend('shard')]],
    },
    total(
      'Late inputs',
      'Of periods that were emitted before.',
      'notification_callbacks_late_inputs_total',
      [1, 100],
    ),
    total(
      'Untracked inputs',
      'Of periods in which their users take no part.',
      'notification_callbacks_untracked_inputs_total',
      [1, 100],
    ),
  ],
};

const subscription: Dashboard = {
  uid: 'galaxy-notify-subscription',
  title: 'galaxy-notify: subscriptions',
  about: 'Subscriptions on messaging and notification routers, and tokens.',
  panels: [
    {
      title: 'Due now',
      about: 'By pool of workers; stays near 0 when routers answer.',
      queries: [['max by (pool) (notification_subscriptions_due)', legend('pool')]],
    },
    {
      title: 'Silent routers',
      about: 'Work has been due there for a quarter of an hour without an answer.',
      queries: [['max by (pool) (notification_subscriptions_silent_routers)', legend('pool')]],
    },
    {
      title: 'Given up',
      about: 'Failed for good; `subscriptions retry` starts them over.',
      kind: 'stat',
      thresholds: [1, 100],
      queries: [['max(notification_subscriptions_without_action)', '']],
    },
    {
      title: 'Unreadable',
      about: 'Rows whose sealed keys do not open: a key is missing.',
      queries: [['max by (kind) (notification_subscriptions_unreadable)', legend('kind')]],
    },
    rates('Work', 'Attempts by kind and how they ended.', 'notification_subscriptions_work_total', [
      'kind',
      'result',
    ]),
    rates('Events', 'About errors, as clients are told them.', 'notification_subscriptions_events_total', [
      'kind',
    ]),
    rates(
      'Worker deaths',
      'Workers that ended by an error.',
      'notification_subscriptions_worker_deaths_total',
      ['pool'],
    ),
  ],
};

const temporal: Dashboard = {
  uid: 'galaxy-notify-temporal',
  title: 'galaxy-notify: workers of Temporal',
  about:
    "Metrics of Temporal's SDK in our processes: whether there are enough of them, and how the server answers.",
  panels: [
    quantiles(
      'Workflow tasks wait',
      'From scheduled to begun.',
      'temporal_workflow_task_schedule_to_start_latency',
      'task_queue',
    ),
    quantiles(
      'Activities wait',
      'From scheduled to begun.',
      'temporal_activity_schedule_to_start_latency',
      'task_queue',
    ),
    quantiles(
      'Workflow tasks take',
      'Running our code, replay apart.',
      'temporal_workflow_task_execution_latency',
      'task_queue',
    ),
    {
      title: 'Free slots',
      about: 'Of the process that has the fewest.',
      queries: [
        [
          'min by (task_queue, worker_type) (temporal_worker_task_slots_available)',
          legend('task_queue', 'worker_type'),
        ],
      ],
    },
    {
      title: 'Used slots',
      about: 'Over all processes.',
      queries: [
        [
          'sum by (task_queue, worker_type) (temporal_worker_task_slots_used)',
          legend('task_queue', 'worker_type'),
        ],
      ],
    },
    {
      title: 'Pollers',
      about: 'Over all processes; none for a task queue means that no worker serves it.',
      queries: [
        ['sum by (task_queue, poller_type) (temporal_num_pollers)', legend('task_queue', 'poller_type')],
      ],
    },
    {
      title: 'Cached workflows',
      about: 'Of all processes; evictions cost replays.',
      queries: [['sum(temporal_sticky_cache_size)', 'workflows']],
    },
    rates('Evictions from the cache', 'The cache is full.', 'temporal_sticky_cache_forced_eviction_total', [
      'namespace',
    ]),
    rates(
      'Failed workflow tasks',
      'A workflow is stuck: a bug, or a change without a patch.',
      'temporal_workflow_task_execution_failed_total',
      ['workflow_type', 'failure_reason'],
    ),
    rates('Failed attempts of activities', 'By type.', 'temporal_activity_execution_failed_total', [
      'activity_type',
    ]),
    rates('Failed calls to the server', 'By operation and status.', 'temporal_request_failure_total', [
      'operation',
      'status_code',
    ]),
    rates('Calls to the server', 'By operation; long polls apart.', 'temporal_request_total', ['operation']),
    quantiles('Calls to the server take', 'Long polls apart.', 'temporal_request_latency', 'operation'),
  ],
};

const secrets: Dashboard = {
  uid: 'galaxy-notify-secrets',
  title: 'galaxy-notify: secrets and keys',
  about: 'Certificates, files that are taken into use while processes run, and keys of encryption.',
  panels: [
    {
      title: 'Certificates expire in',
      about: 'By the variable that names the file; the worst of all processes.',
      unit: 's',
      queries: [['min by (variable) (notification_certificate_expires_in_seconds)', legend('variable')]],
    },
    {
      title: 'Files not taken into use',
      about: 'They have changed, and a process keeps the old values. Fine at none.',
      queries: [['max by (variable) (notification_configuration_refused)', legend('variable')]],
    },
    {
      title: 'Oldest row past its retention',
      about: 'By table. Grows while old rows are not deleted.',
      unit: 'ms',
      queries: [['max by (table) (notification_retention_overdue_ms_milliseconds)', legend('table')]],
    },
    rates(
      'Keys that are missing',
      'What could not be opened, because its key is not configured. Fine at none.',
      'notification_keys_missing_total',
      ['purpose', 'key'],
    ),
  ],
};

export const DASHBOARDS: readonly Dashboard[] = [
  overview,
  intent,
  mobilePush,
  symbolConfig,
  accountCallback,
  subscription,
  temporal,
  secrets,
];
