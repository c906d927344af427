// Made from the catalog by galaxy-notify catalog clients. Changes are lost.
import { constructorIn, defineCatalog } from '../constructors.ts';

/** The catalog that these types are of. */
export const GALAXY = defineCatalog({
  "version": 1,
  "types": {
    "geo.review_recommended": {
      "summary": "A connection from an unusual country suggests a review of the account.",
      "producer": "geoprofile",
      "audiences": {
        "admin_email": [
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "user_id",
          "user_email",
          "observed_country",
          "usual_connection_country",
          "review_reason"
        ],
        "properties": {
          "user_id": {
            "type": "string",
            "format": "line"
          },
          "user_email": {
            "type": "string",
            "format": "line"
          },
          "observed_country": {
            "type": "string",
            "format": "line"
          },
          "usual_connection_country": {
            "type": "string",
            "format": "line"
          },
          "review_reason": {
            "type": "string",
            "format": "text"
          }
        }
      },
      "example": {
        "user_id": "user-42",
        "user_email": "ada@example.com",
        "observed_country": "PT",
        "usual_connection_country": "DE",
        "review_reason": "three new countries in one day"
      }
    },
    "game.turn.ready": {
      "summary": "A new turn can be played. To all active accepted participants.",
      "producer": "game_master",
      "audiences": {
        "user": [
          "push",
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "game_name",
          "turn_number"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "game_name": {
            "type": "string",
            "format": "line"
          },
          "turn_number": {
            "type": "integer",
            "minimum": 0
          }
        }
      },
      "push": {
        "table": "GameTurnReadyEvent",
        "fields": [
          "game_id",
          "turn_number"
        ]
      },
      "example": {
        "game_id": "game-7",
        "game_name": "Orion",
        "turn_number": 12
      }
    },
    "game.finished": {
      "summary": "The last turn has been played. To all active accepted participants.",
      "producer": "game_master",
      "audiences": {
        "user": [
          "push",
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "game_name",
          "final_turn_number"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "game_name": {
            "type": "string",
            "format": "line"
          },
          "final_turn_number": {
            "type": "integer",
            "minimum": 0
          }
        }
      },
      "push": {
        "table": "GameFinishedEvent",
        "fields": [
          "game_id",
          "final_turn_number"
        ]
      },
      "example": {
        "game_id": "game-7",
        "game_name": "Orion",
        "final_turn_number": 87
      }
    },
    "game.generation_failed": {
      "summary": "A turn could not be generated.",
      "producer": "game_master",
      "audiences": {
        "admin_email": [
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "game_name",
          "failure_reason"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "game_name": {
            "type": "string",
            "format": "line"
          },
          "failure_reason": {
            "type": "string",
            "format": "text"
          }
        }
      },
      "priority": "urgent",
      "example": {
        "game_id": "game-7",
        "game_name": "Orion",
        "failure_reason": "turn engine timed out"
      }
    },
    "lobby.runtime_paused_after_start": {
      "summary": "A game was started, but is paused because its runtime did not come up properly.",
      "producer": "game_lobby",
      "audiences": {
        "admin_email": [
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "game_name"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "game_name": {
            "type": "string",
            "format": "line"
          }
        }
      },
      "priority": "urgent",
      "example": {
        "game_id": "game-7",
        "game_name": "Orion"
      }
    },
    "lobby.application.submitted": {
      "summary": "A user applied to a game: to the owner of a private game, to administrators for a public one.",
      "producer": "game_lobby",
      "audiences": {
        "user": [
          "push",
          "email"
        ],
        "admin_email": [
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "game_name",
          "applicant_user_id",
          "applicant_name"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "game_name": {
            "type": "string",
            "format": "line"
          },
          "applicant_user_id": {
            "type": "string",
            "format": "line"
          },
          "applicant_name": {
            "type": "string",
            "format": "line"
          }
        }
      },
      "push": {
        "table": "LobbyApplicationSubmittedEvent",
        "fields": [
          "game_id",
          "applicant_user_id"
        ]
      },
      "example": {
        "game_id": "game-7",
        "game_name": "Orion",
        "applicant_user_id": "user-43",
        "applicant_name": "Grace"
      }
    },
    "lobby.membership.approved": {
      "summary": "An application was accepted. To the applicant.",
      "producer": "game_lobby",
      "audiences": {
        "user": [
          "push",
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "game_name"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "game_name": {
            "type": "string",
            "format": "line"
          }
        }
      },
      "push": {
        "table": "LobbyMembershipApprovedEvent",
        "fields": [
          "game_id"
        ]
      },
      "example": {
        "game_id": "game-7",
        "game_name": "Orion"
      }
    },
    "lobby.membership.rejected": {
      "summary": "An application was turned down. To the applicant.",
      "producer": "game_lobby",
      "audiences": {
        "user": [
          "push",
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "game_name"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "game_name": {
            "type": "string",
            "format": "line"
          }
        }
      },
      "push": {
        "table": "LobbyMembershipRejectedEvent",
        "fields": [
          "game_id"
        ]
      },
      "example": {
        "game_id": "game-7",
        "game_name": "Orion"
      }
    },
    "lobby.membership.blocked": {
      "summary": "A member was blocked. To the owner of the private game.",
      "producer": "game_lobby",
      "audiences": {
        "user": [
          "push",
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "game_name",
          "membership_user_id",
          "membership_user_name",
          "reason"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "game_name": {
            "type": "string",
            "format": "line"
          },
          "membership_user_id": {
            "type": "string",
            "format": "line"
          },
          "membership_user_name": {
            "type": "string",
            "format": "line"
          },
          "reason": {
            "type": "string",
            "format": "text"
          }
        }
      },
      "push": {
        "table": "LobbyMembershipBlockedEvent",
        "fields": [
          "game_id",
          "membership_user_id",
          "reason"
        ]
      },
      "example": {
        "game_id": "game-7",
        "game_name": "Orion",
        "membership_user_id": "user-44",
        "membership_user_name": "Alan",
        "reason": "left the game repeatedly"
      }
    },
    "lobby.invite.created": {
      "summary": "An invitation to a private game. To the invited user, by id and never by raw address.",
      "producer": "game_lobby",
      "audiences": {
        "user": [
          "push",
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "game_name",
          "inviter_user_id",
          "inviter_name"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "game_name": {
            "type": "string",
            "format": "line"
          },
          "inviter_user_id": {
            "type": "string",
            "format": "line"
          },
          "inviter_name": {
            "type": "string",
            "format": "line"
          }
        }
      },
      "push": {
        "table": "LobbyInviteCreatedEvent",
        "fields": [
          "game_id",
          "inviter_user_id"
        ]
      },
      "example": {
        "game_id": "game-7",
        "game_name": "Orion",
        "inviter_user_id": "user-45",
        "inviter_name": "Edsger"
      }
    },
    "lobby.invite.redeemed": {
      "summary": "An invitation was taken up. To the owner of the private game.",
      "producer": "game_lobby",
      "audiences": {
        "user": [
          "push",
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "game_name",
          "invitee_user_id",
          "invitee_name"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "game_name": {
            "type": "string",
            "format": "line"
          },
          "invitee_user_id": {
            "type": "string",
            "format": "line"
          },
          "invitee_name": {
            "type": "string",
            "format": "line"
          }
        }
      },
      "push": {
        "table": "LobbyInviteRedeemedEvent",
        "fields": [
          "game_id",
          "invitee_user_id"
        ]
      },
      "example": {
        "game_id": "game-7",
        "game_name": "Orion",
        "invitee_user_id": "user-46",
        "invitee_name": "Barbara"
      }
    },
    "lobby.invite.expired": {
      "summary": "An invitation was not answered in time. To the owner of the private game.",
      "producer": "game_lobby",
      "audiences": {
        "user": [
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "game_name",
          "invitee_user_id",
          "invitee_name"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "game_name": {
            "type": "string",
            "format": "line"
          },
          "invitee_user_id": {
            "type": "string",
            "format": "line"
          },
          "invitee_name": {
            "type": "string",
            "format": "line"
          }
        }
      },
      "example": {
        "game_id": "game-7",
        "game_name": "Orion",
        "invitee_user_id": "user-46",
        "invitee_name": "Barbara"
      }
    },
    "lobby.race_name.registration_eligible": {
      "summary": "At the end of a game: a capable member may register a race name within 30 days.",
      "producer": "game_lobby",
      "audiences": {
        "user": [
          "push",
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "game_name",
          "race_name",
          "eligible_until_ms"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "game_name": {
            "type": "string",
            "format": "line"
          },
          "race_name": {
            "type": "string",
            "format": "line"
          },
          "eligible_until_ms": {
            "type": "integer",
            "format": "unix-ms",
            "minimum": 1
          }
        }
      },
      "push": {
        "table": "LobbyRaceNameRegistrationEligibleEvent",
        "fields": [
          "game_id",
          "race_name",
          "eligible_until_ms"
        ]
      },
      "example": {
        "game_id": "game-7",
        "game_name": "Orion",
        "race_name": "Zorgons",
        "eligible_until_ms": 1772323200000
      }
    },
    "lobby.race_name.registered": {
      "summary": "A race name was registered. To the registering user.",
      "producer": "game_lobby",
      "audiences": {
        "user": [
          "push",
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "race_name"
        ],
        "properties": {
          "race_name": {
            "type": "string",
            "format": "line"
          }
        }
      },
      "push": {
        "table": "LobbyRaceNameRegisteredEvent",
        "fields": [
          "race_name"
        ]
      },
      "example": {
        "race_name": "Zorgons"
      }
    },
    "lobby.race_name.registration_denied": {
      "summary": "At the end of a game: an incapable member may not register a race name.",
      "producer": "game_lobby",
      "audiences": {
        "user": [
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "game_name",
          "race_name",
          "reason"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "game_name": {
            "type": "string",
            "format": "line"
          },
          "race_name": {
            "type": "string",
            "format": "line"
          },
          "reason": {
            "type": "string",
            "format": "text"
          }
        }
      },
      "example": {
        "game_id": "game-7",
        "game_name": "Orion",
        "race_name": "Zorgons",
        "reason": "name is already registered"
      }
    },
    "runtime.image_pull_failed": {
      "summary": "The image could not be pulled at the first start of a game.",
      "producer": "runtime_manager",
      "audiences": {
        "admin_email": [
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "image_ref",
          "error_code",
          "error_message",
          "attempted_at_ms"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "image_ref": {
            "type": "string",
            "format": "line"
          },
          "error_code": {
            "type": "string",
            "format": "line"
          },
          "error_message": {
            "type": "string",
            "format": "text"
          },
          "attempted_at_ms": {
            "type": "integer",
            "format": "unix-ms",
            "minimum": 1
          }
        }
      },
      "priority": "urgent",
      "example": {
        "game_id": "game-7",
        "image_ref": "registry.example.com/game:1.4",
        "error_code": "image_not_found",
        "error_message": "manifest unknown",
        "attempted_at_ms": 1769731200000
      }
    },
    "runtime.container_start_failed": {
      "summary": "The container could not be created or started at the first start of a game.",
      "producer": "runtime_manager",
      "audiences": {
        "admin_email": [
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "image_ref",
          "error_code",
          "error_message",
          "attempted_at_ms"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "image_ref": {
            "type": "string",
            "format": "line"
          },
          "error_code": {
            "type": "string",
            "format": "line"
          },
          "error_message": {
            "type": "string",
            "format": "text"
          },
          "attempted_at_ms": {
            "type": "integer",
            "format": "unix-ms",
            "minimum": 1
          }
        }
      },
      "priority": "urgent",
      "example": {
        "game_id": "game-7",
        "image_ref": "registry.example.com/game:1.4",
        "error_code": "image_not_found",
        "error_message": "manifest unknown",
        "attempted_at_ms": 1769731200000
      }
    },
    "runtime.start_config_invalid": {
      "summary": "The start configuration was refused at the first start of a game.",
      "producer": "runtime_manager",
      "audiences": {
        "admin_email": [
          "email"
        ]
      },
      "payload": {
        "type": "object",
        "required": [
          "game_id",
          "image_ref",
          "error_code",
          "error_message",
          "attempted_at_ms"
        ],
        "properties": {
          "game_id": {
            "type": "string",
            "format": "line"
          },
          "image_ref": {
            "type": "string",
            "format": "line"
          },
          "error_code": {
            "type": "string",
            "format": "line"
          },
          "error_message": {
            "type": "string",
            "format": "text"
          },
          "attempted_at_ms": {
            "type": "integer",
            "format": "unix-ms",
            "minimum": 1
          }
        }
      },
      "priority": "urgent",
      "example": {
        "game_id": "game-7",
        "image_ref": "registry.example.com/game:1.4",
        "error_code": "image_not_found",
        "error_message": "manifest unknown",
        "attempted_at_ms": 1769731200000
      }
    }
  }
});

/** The names of its types. */
export type NotificationType =
  | 'geo.review_recommended'
  | 'game.turn.ready'
  | 'game.finished'
  | 'game.generation_failed'
  | 'lobby.runtime_paused_after_start'
  | 'lobby.application.submitted'
  | 'lobby.membership.approved'
  | 'lobby.membership.rejected'
  | 'lobby.membership.blocked'
  | 'lobby.invite.created'
  | 'lobby.invite.redeemed'
  | 'lobby.invite.expired'
  | 'lobby.race_name.registration_eligible'
  | 'lobby.race_name.registered'
  | 'lobby.race_name.registration_denied'
  | 'runtime.image_pull_failed'
  | 'runtime.container_start_failed'
  | 'runtime.start_config_invalid';

/** The payload of `geo.review_recommended`; further fields pass through to the mail template. */
export interface GeoReviewRecommendedPayload {
  /** one line, not blank */
  user_id: string;
  /** one line, not blank */
  user_email: string;
  /** one line, not blank */
  observed_country: string;
  /** one line, not blank */
  usual_connection_country: string;
  /** may have several lines, not blank */
  review_reason: string;
}

/** A connection from an unusual country suggests a review of the account. */
export const newGeoReviewRecommended = constructorIn<GeoReviewRecommendedPayload, 'admin_email'>(GALAXY, 'geo.review_recommended');

/** The payload of `game.turn.ready`; further fields pass through to the mail template. */
export interface GameTurnReadyPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  game_name: string;
  /** from 0 */
  turn_number: number;
}

/** A new turn can be played. To all active accepted participants. */
export const newGameTurnReady = constructorIn<GameTurnReadyPayload, 'user'>(GALAXY, 'game.turn.ready');

/** The payload of `game.finished`; further fields pass through to the mail template. */
export interface GameFinishedPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  game_name: string;
  /** from 0 */
  final_turn_number: number;
}

/** The last turn has been played. To all active accepted participants. */
export const newGameFinished = constructorIn<GameFinishedPayload, 'user'>(GALAXY, 'game.finished');

/** The payload of `game.generation_failed`; further fields pass through to the mail template. */
export interface GameGenerationFailedPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  game_name: string;
  /** may have several lines, not blank */
  failure_reason: string;
}

/** A turn could not be generated. */
export const newGameGenerationFailed = constructorIn<GameGenerationFailedPayload, 'admin_email'>(GALAXY, 'game.generation_failed');

/** The payload of `lobby.runtime_paused_after_start`; further fields pass through to the mail template. */
export interface LobbyRuntimePausedAfterStartPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  game_name: string;
}

/** A game was started, but is paused because its runtime did not come up properly. */
export const newLobbyRuntimePausedAfterStart = constructorIn<LobbyRuntimePausedAfterStartPayload, 'admin_email'>(GALAXY, 'lobby.runtime_paused_after_start');

/** The payload of `lobby.application.submitted`; further fields pass through to the mail template. */
export interface LobbyApplicationSubmittedPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  game_name: string;
  /** one line, not blank */
  applicant_user_id: string;
  /** one line, not blank */
  applicant_name: string;
}

/** A user applied to a game: to the owner of a private game, to administrators for a public one. */
export const newLobbyApplicationSubmitted = constructorIn<LobbyApplicationSubmittedPayload, 'user' | 'admin_email'>(GALAXY, 'lobby.application.submitted');

/** The payload of `lobby.membership.approved`; further fields pass through to the mail template. */
export interface LobbyMembershipApprovedPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  game_name: string;
}

/** An application was accepted. To the applicant. */
export const newLobbyMembershipApproved = constructorIn<LobbyMembershipApprovedPayload, 'user'>(GALAXY, 'lobby.membership.approved');

/** The payload of `lobby.membership.rejected`; further fields pass through to the mail template. */
export interface LobbyMembershipRejectedPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  game_name: string;
}

/** An application was turned down. To the applicant. */
export const newLobbyMembershipRejected = constructorIn<LobbyMembershipRejectedPayload, 'user'>(GALAXY, 'lobby.membership.rejected');

/** The payload of `lobby.membership.blocked`; further fields pass through to the mail template. */
export interface LobbyMembershipBlockedPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  game_name: string;
  /** one line, not blank */
  membership_user_id: string;
  /** one line, not blank */
  membership_user_name: string;
  /** may have several lines, not blank */
  reason: string;
}

/** A member was blocked. To the owner of the private game. */
export const newLobbyMembershipBlocked = constructorIn<LobbyMembershipBlockedPayload, 'user'>(GALAXY, 'lobby.membership.blocked');

/** The payload of `lobby.invite.created`; further fields pass through to the mail template. */
export interface LobbyInviteCreatedPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  game_name: string;
  /** one line, not blank */
  inviter_user_id: string;
  /** one line, not blank */
  inviter_name: string;
}

/** An invitation to a private game. To the invited user, by id and never by raw address. */
export const newLobbyInviteCreated = constructorIn<LobbyInviteCreatedPayload, 'user'>(GALAXY, 'lobby.invite.created');

/** The payload of `lobby.invite.redeemed`; further fields pass through to the mail template. */
export interface LobbyInviteRedeemedPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  game_name: string;
  /** one line, not blank */
  invitee_user_id: string;
  /** one line, not blank */
  invitee_name: string;
}

/** An invitation was taken up. To the owner of the private game. */
export const newLobbyInviteRedeemed = constructorIn<LobbyInviteRedeemedPayload, 'user'>(GALAXY, 'lobby.invite.redeemed');

/** The payload of `lobby.invite.expired`; further fields pass through to the mail template. */
export interface LobbyInviteExpiredPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  game_name: string;
  /** one line, not blank */
  invitee_user_id: string;
  /** one line, not blank */
  invitee_name: string;
}

/** An invitation was not answered in time. To the owner of the private game. */
export const newLobbyInviteExpired = constructorIn<LobbyInviteExpiredPayload, 'user'>(GALAXY, 'lobby.invite.expired');

/** The payload of `lobby.race_name.registration_eligible`; further fields pass through to the mail template. */
export interface LobbyRaceNameRegistrationEligiblePayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  game_name: string;
  /** one line, not blank */
  race_name: string;
  /** Unix milliseconds */
  eligible_until_ms: number;
}

/** At the end of a game: a capable member may register a race name within 30 days. */
export const newLobbyRaceNameRegistrationEligible = constructorIn<LobbyRaceNameRegistrationEligiblePayload, 'user'>(GALAXY, 'lobby.race_name.registration_eligible');

/** The payload of `lobby.race_name.registered`; further fields pass through to the mail template. */
export interface LobbyRaceNameRegisteredPayload {
  /** one line, not blank */
  race_name: string;
}

/** A race name was registered. To the registering user. */
export const newLobbyRaceNameRegistered = constructorIn<LobbyRaceNameRegisteredPayload, 'user'>(GALAXY, 'lobby.race_name.registered');

/** The payload of `lobby.race_name.registration_denied`; further fields pass through to the mail template. */
export interface LobbyRaceNameRegistrationDeniedPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  game_name: string;
  /** one line, not blank */
  race_name: string;
  /** may have several lines, not blank */
  reason: string;
}

/** At the end of a game: an incapable member may not register a race name. */
export const newLobbyRaceNameRegistrationDenied = constructorIn<LobbyRaceNameRegistrationDeniedPayload, 'user'>(GALAXY, 'lobby.race_name.registration_denied');

/** The payload of `runtime.image_pull_failed`; further fields pass through to the mail template. */
export interface RuntimeImagePullFailedPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  image_ref: string;
  /** one line, not blank */
  error_code: string;
  /** may have several lines, not blank */
  error_message: string;
  /** Unix milliseconds */
  attempted_at_ms: number;
}

/** The image could not be pulled at the first start of a game. */
export const newRuntimeImagePullFailed = constructorIn<RuntimeImagePullFailedPayload, 'admin_email'>(GALAXY, 'runtime.image_pull_failed');

/** The payload of `runtime.container_start_failed`; further fields pass through to the mail template. */
export interface RuntimeContainerStartFailedPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  image_ref: string;
  /** one line, not blank */
  error_code: string;
  /** may have several lines, not blank */
  error_message: string;
  /** Unix milliseconds */
  attempted_at_ms: number;
}

/** The container could not be created or started at the first start of a game. */
export const newRuntimeContainerStartFailed = constructorIn<RuntimeContainerStartFailedPayload, 'admin_email'>(GALAXY, 'runtime.container_start_failed');

/** The payload of `runtime.start_config_invalid`; further fields pass through to the mail template. */
export interface RuntimeStartConfigInvalidPayload {
  /** one line, not blank */
  game_id: string;
  /** one line, not blank */
  image_ref: string;
  /** one line, not blank */
  error_code: string;
  /** may have several lines, not blank */
  error_message: string;
  /** Unix milliseconds */
  attempted_at_ms: number;
}

/** The start configuration was refused at the first start of a game. */
export const newRuntimeStartConfigInvalid = constructorIn<RuntimeStartConfigInvalidPayload, 'admin_email'>(GALAXY, 'runtime.start_config_invalid');
