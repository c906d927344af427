// Package notificationintent builds notification intents that galaxy-notify accepts, and appends them to its stream.
//
// There is a constructor for each notification type. It makes the checks of the service, so an intent that it returns is
// never malformed; for anything else it returns an [InvalidIntentError] with the code that the service would record.
//
// [Publish] appends an intent with one plain XADD on a Redis client that the caller owns. A publication that fails degrades
// notifications; it must not roll back the business change that it tells about. Repeat it with the same idempotency key and
// the same time of the event: a repeat with the same content has no effect, one with other content is a conflict.
//
// Package notification reads the push events that the service hands to Gateway, and package notifytest has a stream in
// memory for the tests of producers.
package notificationintent
