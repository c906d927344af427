"""The catalog of types. Made from the catalog by galaxy-notify catalog clients."""

from .types import Catalog, TypeSpec

CATALOG: Catalog = {
    "geo.review_recommended": TypeSpec(
        producer="geoprofile",
        audiences=("admin_email",),
        fields={
            "user_id": {"type": "string", "format": "line"},
            "user_email": {"type": "string", "format": "line"},
            "observed_country": {"type": "string", "format": "line"},
            "usual_connection_country": {"type": "string", "format": "line"},
            "review_reason": {"type": "string", "format": "text"},
        },
        required=("user_id", "user_email", "observed_country", "usual_connection_country", "review_reason"),
    ),
    "game.turn.ready": TypeSpec(
        producer="game_master",
        audiences=("user",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "game_name": {"type": "string", "format": "line"},
            "turn_number": {"type": "integer", "minimum": 0},
        },
        required=("game_id", "game_name", "turn_number"),
    ),
    "game.finished": TypeSpec(
        producer="game_master",
        audiences=("user",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "game_name": {"type": "string", "format": "line"},
            "final_turn_number": {"type": "integer", "minimum": 0},
        },
        required=("game_id", "game_name", "final_turn_number"),
    ),
    "game.generation_failed": TypeSpec(
        producer="game_master",
        audiences=("admin_email",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "game_name": {"type": "string", "format": "line"},
            "failure_reason": {"type": "string", "format": "text"},
        },
        required=("game_id", "game_name", "failure_reason"),
    ),
    "lobby.runtime_paused_after_start": TypeSpec(
        producer="game_lobby",
        audiences=("admin_email",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "game_name": {"type": "string", "format": "line"},
        },
        required=("game_id", "game_name"),
    ),
    "lobby.application.submitted": TypeSpec(
        producer="game_lobby",
        audiences=("user", "admin_email"),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "game_name": {"type": "string", "format": "line"},
            "applicant_user_id": {"type": "string", "format": "line"},
            "applicant_name": {"type": "string", "format": "line"},
        },
        required=("game_id", "game_name", "applicant_user_id", "applicant_name"),
    ),
    "lobby.membership.approved": TypeSpec(
        producer="game_lobby",
        audiences=("user",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "game_name": {"type": "string", "format": "line"},
        },
        required=("game_id", "game_name"),
    ),
    "lobby.membership.rejected": TypeSpec(
        producer="game_lobby",
        audiences=("user",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "game_name": {"type": "string", "format": "line"},
        },
        required=("game_id", "game_name"),
    ),
    "lobby.membership.blocked": TypeSpec(
        producer="game_lobby",
        audiences=("user",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "game_name": {"type": "string", "format": "line"},
            "membership_user_id": {"type": "string", "format": "line"},
            "membership_user_name": {"type": "string", "format": "line"},
            "reason": {"type": "string", "format": "text"},
        },
        required=("game_id", "game_name", "membership_user_id", "membership_user_name", "reason"),
    ),
    "lobby.invite.created": TypeSpec(
        producer="game_lobby",
        audiences=("user",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "game_name": {"type": "string", "format": "line"},
            "inviter_user_id": {"type": "string", "format": "line"},
            "inviter_name": {"type": "string", "format": "line"},
        },
        required=("game_id", "game_name", "inviter_user_id", "inviter_name"),
    ),
    "lobby.invite.redeemed": TypeSpec(
        producer="game_lobby",
        audiences=("user",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "game_name": {"type": "string", "format": "line"},
            "invitee_user_id": {"type": "string", "format": "line"},
            "invitee_name": {"type": "string", "format": "line"},
        },
        required=("game_id", "game_name", "invitee_user_id", "invitee_name"),
    ),
    "lobby.invite.expired": TypeSpec(
        producer="game_lobby",
        audiences=("user",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "game_name": {"type": "string", "format": "line"},
            "invitee_user_id": {"type": "string", "format": "line"},
            "invitee_name": {"type": "string", "format": "line"},
        },
        required=("game_id", "game_name", "invitee_user_id", "invitee_name"),
    ),
    "lobby.race_name.registration_eligible": TypeSpec(
        producer="game_lobby",
        audiences=("user",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "game_name": {"type": "string", "format": "line"},
            "race_name": {"type": "string", "format": "line"},
            "eligible_until_ms": {"type": "integer", "format": "unix-ms", "minimum": 1},
        },
        required=("game_id", "game_name", "race_name", "eligible_until_ms"),
    ),
    "lobby.race_name.registered": TypeSpec(
        producer="game_lobby",
        audiences=("user",),
        fields={
            "race_name": {"type": "string", "format": "line"},
        },
        required=("race_name",),
    ),
    "lobby.race_name.registration_denied": TypeSpec(
        producer="game_lobby",
        audiences=("user",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "game_name": {"type": "string", "format": "line"},
            "race_name": {"type": "string", "format": "line"},
            "reason": {"type": "string", "format": "text"},
        },
        required=("game_id", "game_name", "race_name", "reason"),
    ),
    "runtime.image_pull_failed": TypeSpec(
        producer="runtime_manager",
        audiences=("admin_email",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "image_ref": {"type": "string", "format": "line"},
            "error_code": {"type": "string", "format": "line"},
            "error_message": {"type": "string", "format": "text"},
            "attempted_at_ms": {"type": "integer", "format": "unix-ms", "minimum": 1},
        },
        required=("game_id", "image_ref", "error_code", "error_message", "attempted_at_ms"),
    ),
    "runtime.container_start_failed": TypeSpec(
        producer="runtime_manager",
        audiences=("admin_email",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "image_ref": {"type": "string", "format": "line"},
            "error_code": {"type": "string", "format": "line"},
            "error_message": {"type": "string", "format": "text"},
            "attempted_at_ms": {"type": "integer", "format": "unix-ms", "minimum": 1},
        },
        required=("game_id", "image_ref", "error_code", "error_message", "attempted_at_ms"),
    ),
    "runtime.start_config_invalid": TypeSpec(
        producer="runtime_manager",
        audiences=("admin_email",),
        fields={
            "game_id": {"type": "string", "format": "line"},
            "image_ref": {"type": "string", "format": "line"},
            "error_code": {"type": "string", "format": "line"},
            "error_message": {"type": "string", "format": "text"},
            "attempted_at_ms": {"type": "integer", "format": "unix-ms", "minimum": 1},
        },
        required=("game_id", "image_ref", "error_code", "error_message", "attempted_at_ms"),
    ),
}
