"""Payloads and constructors of all types. Made from the catalog by galaxy-notify catalog clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .catalog import CATALOG
from .intent import Intent, new_intent

__all__ = [
    "GeoReviewRecommendedPayload",
    "new_geo_review_recommended",
    "GameTurnReadyPayload",
    "new_game_turn_ready",
    "GameFinishedPayload",
    "new_game_finished",
    "GameGenerationFailedPayload",
    "new_game_generation_failed",
    "LobbyRuntimePausedAfterStartPayload",
    "new_lobby_runtime_paused_after_start",
    "LobbyApplicationSubmittedPayload",
    "new_lobby_application_submitted",
    "new_lobby_application_submitted_to_administrators",
    "LobbyMembershipApprovedPayload",
    "new_lobby_membership_approved",
    "LobbyMembershipRejectedPayload",
    "new_lobby_membership_rejected",
    "LobbyMembershipBlockedPayload",
    "new_lobby_membership_blocked",
    "LobbyInviteCreatedPayload",
    "new_lobby_invite_created",
    "LobbyInviteRedeemedPayload",
    "new_lobby_invite_redeemed",
    "LobbyInviteExpiredPayload",
    "new_lobby_invite_expired",
    "LobbyRaceNameRegistrationEligiblePayload",
    "new_lobby_race_name_registration_eligible",
    "LobbyRaceNameRegisteredPayload",
    "new_lobby_race_name_registered",
    "LobbyRaceNameRegistrationDeniedPayload",
    "new_lobby_race_name_registration_denied",
    "RuntimeImagePullFailedPayload",
    "new_runtime_image_pull_failed",
    "RuntimeContainerStartFailedPayload",
    "new_runtime_container_start_failed",
    "RuntimeStartConfigInvalidPayload",
    "new_runtime_start_config_invalid",
]


@dataclass(frozen=True)
class GeoReviewRecommendedPayload:
    """The payload of geo.review_recommended."""

    user_id: str
    """One line, not blank."""
    user_email: str
    """One line, not blank."""
    observed_country: str
    """One line, not blank."""
    usual_connection_country: str
    """One line, not blank."""
    review_reason: str
    """May have several lines, not blank."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_geo_review_recommended(
    payload: GeoReviewRecommendedPayload,
    *,
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """A connection from an unusual country suggests a review of the account.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "geo.review_recommended",
        "admin_email",
        payload,
        recipient_user_ids=None,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class GameTurnReadyPayload:
    """The payload of game.turn.ready."""

    game_id: str
    """One line, not blank."""
    game_name: str
    """One line, not blank."""
    turn_number: int
    """From 0."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_game_turn_ready(
    payload: GameTurnReadyPayload,
    *,
    recipient_user_ids: Iterable[str],
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """A new turn can be played. To all active accepted participants.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "game.turn.ready",
        "user",
        payload,
        recipient_user_ids=recipient_user_ids,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class GameFinishedPayload:
    """The payload of game.finished."""

    game_id: str
    """One line, not blank."""
    game_name: str
    """One line, not blank."""
    final_turn_number: int
    """From 0."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_game_finished(
    payload: GameFinishedPayload,
    *,
    recipient_user_ids: Iterable[str],
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """The last turn has been played. To all active accepted participants.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "game.finished",
        "user",
        payload,
        recipient_user_ids=recipient_user_ids,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class GameGenerationFailedPayload:
    """The payload of game.generation_failed."""

    game_id: str
    """One line, not blank."""
    game_name: str
    """One line, not blank."""
    failure_reason: str
    """May have several lines, not blank."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_game_generation_failed(
    payload: GameGenerationFailedPayload,
    *,
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """A turn could not be generated.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "game.generation_failed",
        "admin_email",
        payload,
        recipient_user_ids=None,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class LobbyRuntimePausedAfterStartPayload:
    """The payload of lobby.runtime_paused_after_start."""

    game_id: str
    """One line, not blank."""
    game_name: str
    """One line, not blank."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_lobby_runtime_paused_after_start(
    payload: LobbyRuntimePausedAfterStartPayload,
    *,
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """A game was started, but is paused because its runtime did not come up properly.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "lobby.runtime_paused_after_start",
        "admin_email",
        payload,
        recipient_user_ids=None,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class LobbyApplicationSubmittedPayload:
    """The payload of lobby.application.submitted."""

    game_id: str
    """One line, not blank."""
    game_name: str
    """One line, not blank."""
    applicant_user_id: str
    """One line, not blank."""
    applicant_name: str
    """One line, not blank."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_lobby_application_submitted(
    payload: LobbyApplicationSubmittedPayload,
    *,
    recipient_user_ids: Iterable[str],
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """A user applied to a game: to the owner of a private game, to administrators for a public one.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "lobby.application.submitted",
        "user",
        payload,
        recipient_user_ids=recipient_user_ids,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


def new_lobby_application_submitted_to_administrators(
    payload: LobbyApplicationSubmittedPayload,
    *,
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """A user applied to a game: to the owner of a private game, to administrators for a public one.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "lobby.application.submitted",
        "admin_email",
        payload,
        recipient_user_ids=None,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class LobbyMembershipApprovedPayload:
    """The payload of lobby.membership.approved."""

    game_id: str
    """One line, not blank."""
    game_name: str
    """One line, not blank."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_lobby_membership_approved(
    payload: LobbyMembershipApprovedPayload,
    *,
    recipient_user_ids: Iterable[str],
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """An application was accepted. To the applicant.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "lobby.membership.approved",
        "user",
        payload,
        recipient_user_ids=recipient_user_ids,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class LobbyMembershipRejectedPayload:
    """The payload of lobby.membership.rejected."""

    game_id: str
    """One line, not blank."""
    game_name: str
    """One line, not blank."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_lobby_membership_rejected(
    payload: LobbyMembershipRejectedPayload,
    *,
    recipient_user_ids: Iterable[str],
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """An application was turned down. To the applicant.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "lobby.membership.rejected",
        "user",
        payload,
        recipient_user_ids=recipient_user_ids,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class LobbyMembershipBlockedPayload:
    """The payload of lobby.membership.blocked."""

    game_id: str
    """One line, not blank."""
    game_name: str
    """One line, not blank."""
    membership_user_id: str
    """One line, not blank."""
    membership_user_name: str
    """One line, not blank."""
    reason: str
    """May have several lines, not blank."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_lobby_membership_blocked(
    payload: LobbyMembershipBlockedPayload,
    *,
    recipient_user_ids: Iterable[str],
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """A member was blocked. To the owner of the private game.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "lobby.membership.blocked",
        "user",
        payload,
        recipient_user_ids=recipient_user_ids,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class LobbyInviteCreatedPayload:
    """The payload of lobby.invite.created."""

    game_id: str
    """One line, not blank."""
    game_name: str
    """One line, not blank."""
    inviter_user_id: str
    """One line, not blank."""
    inviter_name: str
    """One line, not blank."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_lobby_invite_created(
    payload: LobbyInviteCreatedPayload,
    *,
    recipient_user_ids: Iterable[str],
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """An invitation to a private game. To the invited user, by id and never by raw address.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "lobby.invite.created",
        "user",
        payload,
        recipient_user_ids=recipient_user_ids,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class LobbyInviteRedeemedPayload:
    """The payload of lobby.invite.redeemed."""

    game_id: str
    """One line, not blank."""
    game_name: str
    """One line, not blank."""
    invitee_user_id: str
    """One line, not blank."""
    invitee_name: str
    """One line, not blank."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_lobby_invite_redeemed(
    payload: LobbyInviteRedeemedPayload,
    *,
    recipient_user_ids: Iterable[str],
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """An invitation was taken up. To the owner of the private game.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "lobby.invite.redeemed",
        "user",
        payload,
        recipient_user_ids=recipient_user_ids,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class LobbyInviteExpiredPayload:
    """The payload of lobby.invite.expired."""

    game_id: str
    """One line, not blank."""
    game_name: str
    """One line, not blank."""
    invitee_user_id: str
    """One line, not blank."""
    invitee_name: str
    """One line, not blank."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_lobby_invite_expired(
    payload: LobbyInviteExpiredPayload,
    *,
    recipient_user_ids: Iterable[str],
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """An invitation was not answered in time. To the owner of the private game.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "lobby.invite.expired",
        "user",
        payload,
        recipient_user_ids=recipient_user_ids,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class LobbyRaceNameRegistrationEligiblePayload:
    """The payload of lobby.race_name.registration_eligible."""

    game_id: str
    """One line, not blank."""
    game_name: str
    """One line, not blank."""
    race_name: str
    """One line, not blank."""
    eligible_until_ms: int
    """Unix milliseconds."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_lobby_race_name_registration_eligible(
    payload: LobbyRaceNameRegistrationEligiblePayload,
    *,
    recipient_user_ids: Iterable[str],
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """At the end of a game: a capable member may register a race name within 30 days.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "lobby.race_name.registration_eligible",
        "user",
        payload,
        recipient_user_ids=recipient_user_ids,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class LobbyRaceNameRegisteredPayload:
    """The payload of lobby.race_name.registered."""

    race_name: str
    """One line, not blank."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_lobby_race_name_registered(
    payload: LobbyRaceNameRegisteredPayload,
    *,
    recipient_user_ids: Iterable[str],
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """A race name was registered. To the registering user.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "lobby.race_name.registered",
        "user",
        payload,
        recipient_user_ids=recipient_user_ids,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class LobbyRaceNameRegistrationDeniedPayload:
    """The payload of lobby.race_name.registration_denied."""

    game_id: str
    """One line, not blank."""
    game_name: str
    """One line, not blank."""
    race_name: str
    """One line, not blank."""
    reason: str
    """May have several lines, not blank."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_lobby_race_name_registration_denied(
    payload: LobbyRaceNameRegistrationDeniedPayload,
    *,
    recipient_user_ids: Iterable[str],
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """At the end of a game: an incapable member may not register a race name.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "lobby.race_name.registration_denied",
        "user",
        payload,
        recipient_user_ids=recipient_user_ids,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class RuntimeImagePullFailedPayload:
    """The payload of runtime.image_pull_failed."""

    game_id: str
    """One line, not blank."""
    image_ref: str
    """One line, not blank."""
    error_code: str
    """One line, not blank."""
    error_message: str
    """May have several lines, not blank."""
    attempted_at_ms: int
    """Unix milliseconds."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_runtime_image_pull_failed(
    payload: RuntimeImagePullFailedPayload,
    *,
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """The image could not be pulled at the first start of a game.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "runtime.image_pull_failed",
        "admin_email",
        payload,
        recipient_user_ids=None,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class RuntimeContainerStartFailedPayload:
    """The payload of runtime.container_start_failed."""

    game_id: str
    """One line, not blank."""
    image_ref: str
    """One line, not blank."""
    error_code: str
    """One line, not blank."""
    error_message: str
    """May have several lines, not blank."""
    attempted_at_ms: int
    """Unix milliseconds."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_runtime_container_start_failed(
    payload: RuntimeContainerStartFailedPayload,
    *,
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """The container could not be created or started at the first start of a game.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "runtime.container_start_failed",
        "admin_email",
        payload,
        recipient_user_ids=None,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )


@dataclass(frozen=True)
class RuntimeStartConfigInvalidPayload:
    """The payload of runtime.start_config_invalid."""

    game_id: str
    """One line, not blank."""
    image_ref: str
    """One line, not blank."""
    error_code: str
    """One line, not blank."""
    error_message: str
    """May have several lines, not blank."""
    attempted_at_ms: int
    """Unix milliseconds."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which pass through to the mail template."""


def new_runtime_start_config_invalid(
    payload: RuntimeStartConfigInvalidPayload,
    *,
    idempotency_key: str,
    occurred_at: datetime | int,
    deliver_at: datetime | int | None = None,
    expires_at: datetime | int | None = None,
    request_id: str | None = None,
    trace_id: str | None = None,
    traceparent: str | None = None,
) -> Intent:
    """The start configuration was refused at the first start of a game.

    Raises InvalidIntentError for what the service would refuse.
    """
    return new_intent(
        CATALOG,
        "runtime.start_config_invalid",
        "admin_email",
        payload,
        recipient_user_ids=None,
        idempotency_key=idempotency_key,
        occurred_at=occurred_at,
        deliver_at=deliver_at,
        expires_at=expires_at,
        request_id=request_id,
        trace_id=trace_id,
        traceparent=traceparent,
    )
