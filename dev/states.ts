/**
 * The states of rows: what each means, what ends it without an operator, and what an operator can do. The tests prove the
 * two ways out. `node dev/reference.ts` writes the page, and test/platform/pages.unit.test.ts compares it with the schema.
 */

export interface State {
  /** Kind of work. */
  kind: string;
  /** Table, column, or column and value: `routes.status pending`. */
  row: string;
  meaning: string;
  /** What ends the state by itself. `final`: the row stays until retention deletes it. */
  end: string;
  /** Commands, without the name of the program: `gn`. */
  command: string;
  tests: string[];
}

const TABLE = `
## intent
intents.status open | read, not decided | its workflow retries every 30 s; dispatched again without one | intents waiting, notifications cancel | intent-D6 I12
intents.status accepted | has a record | final | notifications show | I10
intents.status duplicate | repeats an earlier key and content | final | - | intent-P4
intents.status conflict | repeats a key with other content | final | malformed republish | I9
intents.status refused | a recipient is unknown, or PostgreSQL refuses the text | final | malformed republish | I6 I29
intents.status cancelled | cancelled before acceptance | final | notifications show | I26 I49
malformed_intents | refused entry and its reason | final | malformed republish | I6 I29
records | accepted intent | final, once all routes are closed and the key is free | notifications show | I10 I44
replays | who replayed a route | deleted with its record | - | I25
routes.status pending | not published | its workflow publishes it; taken up without one | notifications cancel, channels resume, producers resume, doctor | I21 I24 I49
routes.status failed | failed within its budget | retried by the ladder | notifications cancel | I21 I49
routes.status published | handed off | final; handed off again if the stream lost it | - | I23 I46
routes.status skipped | unwanted, cancelled, expired, throttled or collapsed | final | why | I15 I26 I78 I93 I98
routes.status dead_letter | budget spent | final | replay | I22 I25
dead_letters | cause of a dead letter | deleted with its record | notifications show | I22
throttles | what a recipient got of a throttled type | deleted after its window | - | I98
holds.is_paused | a channel or producer waits | never: an operator paused it | channels resume, producers resume | I26 I85 C9
outbound_streams.suspect_since | the stream may have lost entries | the repair checks its routes and clears it | doctor | I46
outbound_streams.has_fallen_back | the stream lost entries that were seen | cleared with the suspicion | doctor | I46
inbound_streams | read position of a stream | updated by the reader | recover, bridge status | I52 I54
outcomes | event for a producer | relayed within a second; deleted a day later | doctor | Q1
operations | bulk request of an operator | its workflow finishes it; restarted without one | operations resume, operations abort | U2
operation_items | target of an operation | with its operation | operations show | U2
operation_items.was_ordered | null: open; else whether it changed anything | with its operation | operations show | U2

## Every kind
installation | facts about the installation | one row | - | I51
forgotten_users | request to forget a user | final; no ended_at: it was interrupted | users forget | I79
operator_actions | change that an operator requested | final | - | U7 security-14

## mobile-push
notification_log.status pending | taken, not done | its workflow sends within the budget of each device | mobile show, mobile replay | M3 M8
notification_log.status sent | every device has it | final | - | M3
notification_log.status partial | some devices have it | final | mobile replay | M3 M8
notification_log.status failed | no device has it | final | mobile replay | M3 M8
notification_log.status no_tokens | the user had no device | final | - | M4
notification_log.status malformed | refused, with the reason | final | mobile show | M1
notification_log.status max_retries | delivered five times, never taken | final | mobile replay | M2
notification_sends.status pending | waits for an attempt | with its job | mobile show | M8
notification_sends.status sent | FCM accepted it | final | - | M8
notification_sends.status removed | the device token was dead and is deleted | final | - | M7
notification_sends.status failed | given up, with its code | final | mobile replay | M8

## symbol-config
symbols.is_enabled | targets get the symbol | never: an operator decides | symbols enable, symbols disable | S7
symbol_snapshots | version of the list | deleted when a newer one exists | symbols push | S5
symbol_targets.failing_since | every push since then failed | the ladder, then every reconciliation | symbols status, symbols push | S3 S4
symbol_targets.is_gone | the target answered 410 | pushed to again only with all targets | symbols push | bug-P14

## account-callback
callback_settings | how many shards the users are spread over | never: it stays once there are users | callbacks status | kinds-V1
callback_trackings | tracked user and its progress | advances daily; deleted after retention without tracking | callbacks append | C2 C8
callback_trackings.is_waited_for | daily callbacks of the shard wait for the user | with the user's next day | callbacks release | C2
callback_snapshots.status pending | taken, not tried | hours: the next alarm; days: when all trackings caught up | callbacks status | C3
callback_snapshots.status retrying | failed, to be retried | the ladder | callbacks failed | C5
callback_snapshots.status delivered | acknowledged | final; hours: three days | - | C8
callback_snapshots.status dropped | ladder spent | final | callbacks replay | C5
failed_callbacks | time of the next attempt, none once it was given up | the ladder, callbacks replay | callbacks failed | C5
malformed_account_inputs | refused entry and its reason | final | callbacks malformed list | C7

## subscription
agents.is_open | false: closed, no work is done | the next start of a process opens it | update open | N13
smp_servers | messaging router with its pinned fingerprint | never: an operator decides | subscriptions trust | subscription-B3 N19
ntf_servers | notification router with its pinned fingerprint | stays with its token | subscriptions trust | subscription-B3 N19
ntf_tokens.status NEW | not registered | its workflow registers it | tokens register | N15
ntf_tokens.status REGISTERED | the router pushed the code | registering again pushes another code | tokens register, tokens verify | N15
ntf_tokens.status CONFIRMED | the code arrived | the application verifies it | tokens verify | N15
ntf_tokens.status ACTIVE | usable | until the router changes it | tokens check | N15
ntf_tokens.status EXPIRED | unseen by the router for long | the application registers it | tokens register | N15
ntf_tokens.status INVALID | the provider refuses the device token | the application registers another | tokens register | N15
ntf_tokens.status INVALID,BAD | INVALID: malformed token | as INVALID | tokens register | N15
ntf_tokens.status INVALID,TOPIC | INVALID: token of another app | as INVALID | tokens register | N15
ntf_tokens.status INVALID,EXPIRED | INVALID: expired token | as INVALID | tokens register | N15
ntf_tokens.status INVALID,UNREGISTERED | INVALID: app removed | as INVALID | tokens register | N15
ntf_tokens.action REGISTER | registration due | its workflow, without limit | tokens register | N15
ntf_tokens.action VERIFY | verification due | its workflow, without limit | tokens verify | N15
ntf_tokens.action CHECK | check due | its workflow, without limit | tokens check | N15
ntf_tokens.action DELETE | deletion due | its workflow, without limit | tokens delete | N5
ntf_tokens_to_delete | deleted here, not on its router | its worker, for 21 days | subscriptions status | N5
ntf_tokens_to_delete.del_failed | its key does not open | the sweep, once the key is back, for 21 days | subscriptions status | subscription-B4
requests.is_done | request about a token | deleted when done, or by the sweep | tokens check | N15
connections.enable_ntfs | false: no notifications | never: the application decides | subscriptions toggle | subscription-B5
connections.is_deleted | waits for its router | deleted when the router deleted the notifier or refuses finally, or after 21 days | subscriptions status | subscription-B4
rcv_queues | queue of an application | deleted with its connection | subscriptions delete | subscription-L5
ntf_subscriptions.status NEW | to be created | its workers, without limit | subscriptions retry | N1 N4
ntf_subscriptions.status KEY | the queue has its credentials | its worker | subscriptions retry | N10
ntf_subscriptions.status CREATED … | exists; last answer of the router | checked after 1 day, then every 3; created again if it ended | subscriptions retry | N3 N4
ntf_subscriptions.status OFF | ended by the router | the next check creates it again | subscriptions retry | N4
ntf_subscriptions.status DELETED | deleted on the router | its worker removes it | subscriptions retry | N7
ntf_subscriptions.ntf_action N | SNEW due | its worker; given up on a final refusal | subscriptions retry | N6
ntf_subscriptions.ntf_action C | check due at its time | its worker | subscriptions retry | N3
ntf_subscriptions.ntf_action D | SDEL due (old record) | its worker | subscriptions retry | N7
ntf_subscriptions.ntf_action R | rotation due (old record) | its worker | subscriptions retry | N7
ntf_subscriptions.smp_action K | NKEY due | its worker; given up on a final refusal | subscriptions retry | N6
ntf_subscriptions.smp_action D | NDEL due | its worker | subscriptions retry | N11
ntf_subscriptions.ntf_failed | its keys for the notification router do not open | the sweep, once they open | subscriptions retry, subscriptions delete | subscription-B4
ntf_subscriptions.smp_failed | its keys for the messaging router do not open | the sweep, once they open | subscriptions retry, subscriptions delete | subscription-B4
events | not in the stream of events yet | relayed within a second; again if the stream lost it | doctor | N16
servers_stats | counters of the agent | never: counters | subscriptions statistics | N8
`;

export const STATES: readonly State[] = TABLE.split(/^## /m)
  .slice(1)
  .flatMap((section) => {
    const [kind = '', ...lines] = section.trim().split('\n');
    return lines.filter(Boolean).map((line) => {
      const [row = '', meaning = '', end = '', command = '', tests = ''] = line.split(' | ');
      return { kind, row, meaning, end, command, tests: tests.split(' ') };
    });
  });
