/**
 * Every step of the product on the way of an intent, as a move: what it reads, and the one store that it changes. Between
 * any two of them anything else may happen.
 */
import {
  closeAgain,
  closeRoute,
  confirmCancellation,
  endNotification,
  giveUpWaiting,
  handOff,
  loadRow,
  replay,
  settle,
  settleClosed,
  startRoute,
} from './delivery-moves.ts';
import {
  decide,
  dispatch,
  hearOfDecision,
  look,
  restartIntent,
  saveEntry,
  sendAgain,
  startReader,
  takeEntry,
} from './intake-moves.ts';
import type { Mechanisms, Move } from './mechanisms.ts';
import { beginRepair, consume, endRepair, lookAtOutbound, moveEntry, restore } from './outbound-moves.ts';
import { ATTEMPTERS } from './state.ts';

/** Steps that happen by themselves when everything works. Their order is that in which a quiet service makes them. */
export function stepsOf(mechanisms: Mechanisms): Move[] {
  const { repair, reconciler, looks, keepsOffsetWithRows } = mechanisms;
  const attempters = ATTEMPTERS.filter((by) => by === 'route' || reconciler);
  return [
    { name: 'the reader starts', make: startReader(mechanisms) },
    ...(looks && keepsOffsetWithRows ? [{ name: 'the watch looks', make: look }] : []),
    { name: 'the reader takes an entry', make: takeEntry },
    { name: 'its row is saved with the offset', make: saveEntry(mechanisms) },
    { name: 'the intent is dispatched', make: dispatch },
    { name: 'the intent is decided', make: decide },
    { name: 'the workflow hears of the decision', make: hearOfDecision },
    { name: 'the route is started', make: startRoute },
    ...attempters.map((by) => ({ name: `the ${by} settles the row`, make: settle(by) })),
    ...attempters.map((by) => ({ name: `the ${by} hands off`, make: handOff(mechanisms, by) })),
    ...attempters.map((by) => ({ name: `the ${by} loads the row`, make: loadRow(by) })),
    { name: 'the notification ends', make: endNotification },
    { name: 'the route is closed', make: closeRoute },
    { name: 'the closed route is settled', make: settleClosed },
    ...(mechanisms.closesTwice ? [{ name: 'the route is closed again', make: closeAgain }] : []),
    { name: 'the cancelled intent waits no more', make: giveUpWaiting(mechanisms) },
    { name: 'the cancellation is confirmed', make: confirmCancellation(mechanisms) },
    ...(reconciler ? [{ name: 'the reconciler restarts an intent', make: restartIntent }] : []),
    { name: 'an operator replays', make: replay },
    ...(repair
      ? [
          { name: 'the outbound watch looks', make: lookAtOutbound },
          { name: 'the repair begins', make: beginRepair },
          { name: 'the repair hands off again', make: restore },
          { name: 'the repair moves the entry', make: moveEntry },
          { name: 'the repair ends', make: endRepair },
        ]
      : []),
    { name: 'consumers read', make: consume },
    { name: 'the producer sends again what Redis lost', make: sendAgain },
  ];
}
