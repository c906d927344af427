"""The catalog of types and the limits. Made from the catalog by galaxy-notify catalog clients."""

MAX_ENTRY_BYTES = 1048576
MAX_ENTRY_FIELDS = 1024
MAX_JSON_DEPTH = 32
MAX_KEY_BYTES = 1024
MAX_PAYLOAD_BYTES = 262144
MAX_TIMESTAMP_MS = 253402300799999
MAX_USER_ID_BYTES = 512
MIN_TIMESTAMP_MS = 946684800000

# Type: producer, audiences, and name and kind of the payload fields in the order of their checks.
CATALOG: dict[str, tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    "geo.review_recommended": (
        "geoprofile",
        ("admin_email",),
        (("user_id", "text"), ("user_email", "text"), ("observed_country", "text"), ("usual_connection_country", "text"), ("review_reason", "lines")),
    ),
    "game.turn.ready": (
        "game_master",
        ("user",),
        (("game_id", "text"), ("game_name", "text"), ("turn_number", "count")),
    ),
    "game.finished": (
        "game_master",
        ("user",),
        (("game_id", "text"), ("game_name", "text"), ("final_turn_number", "count")),
    ),
    "game.generation_failed": (
        "game_master",
        ("admin_email",),
        (("game_id", "text"), ("game_name", "text"), ("failure_reason", "lines")),
    ),
    "lobby.runtime_paused_after_start": (
        "game_lobby",
        ("admin_email",),
        (("game_id", "text"), ("game_name", "text")),
    ),
    "lobby.application.submitted": (
        "game_lobby",
        ("user", "admin_email"),
        (("game_id", "text"), ("game_name", "text"), ("applicant_user_id", "text"), ("applicant_name", "text")),
    ),
    "lobby.membership.approved": (
        "game_lobby",
        ("user",),
        (("game_id", "text"), ("game_name", "text")),
    ),
    "lobby.membership.rejected": (
        "game_lobby",
        ("user",),
        (("game_id", "text"), ("game_name", "text")),
    ),
    "lobby.membership.blocked": (
        "game_lobby",
        ("user",),
        (("game_id", "text"), ("game_name", "text"), ("membership_user_id", "text"), ("membership_user_name", "text"), ("reason", "lines")),
    ),
    "lobby.invite.created": (
        "game_lobby",
        ("user",),
        (("game_id", "text"), ("game_name", "text"), ("inviter_user_id", "text"), ("inviter_name", "text")),
    ),
    "lobby.invite.redeemed": (
        "game_lobby",
        ("user",),
        (("game_id", "text"), ("game_name", "text"), ("invitee_user_id", "text"), ("invitee_name", "text")),
    ),
    "lobby.invite.expired": (
        "game_lobby",
        ("user",),
        (("game_id", "text"), ("game_name", "text"), ("invitee_user_id", "text"), ("invitee_name", "text")),
    ),
    "lobby.race_name.registration_eligible": (
        "game_lobby",
        ("user",),
        (("game_id", "text"), ("game_name", "text"), ("race_name", "text"), ("eligible_until_ms", "time")),
    ),
    "lobby.race_name.registered": (
        "game_lobby",
        ("user",),
        (("race_name", "text"),),
    ),
    "lobby.race_name.registration_denied": (
        "game_lobby",
        ("user",),
        (("game_id", "text"), ("game_name", "text"), ("race_name", "text"), ("reason", "lines")),
    ),
    "runtime.image_pull_failed": (
        "runtime_manager",
        ("admin_email",),
        (("game_id", "text"), ("image_ref", "text"), ("error_code", "text"), ("error_message", "lines"), ("attempted_at_ms", "time")),
    ),
    "runtime.container_start_failed": (
        "runtime_manager",
        ("admin_email",),
        (("game_id", "text"), ("image_ref", "text"), ("error_code", "text"), ("error_message", "lines"), ("attempted_at_ms", "time")),
    ),
    "runtime.start_config_invalid": (
        "runtime_manager",
        ("admin_email",),
        (("game_id", "text"), ("image_ref", "text"), ("error_code", "text"), ("error_message", "lines"), ("attempted_at_ms", "time")),
    ),
}
