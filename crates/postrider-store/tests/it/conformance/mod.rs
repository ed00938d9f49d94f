//! What every backend promises, whatever it is made of.
//!
//! A backend brings a [`Harness`] and one line of [`conformance_suite`]; nothing here names one.

pub(crate) mod accept;
pub(crate) mod alerts;
pub(crate) mod directory;
pub(crate) mod filters;
mod fixture;
pub(crate) mod import;
pub(crate) mod lane;
pub(crate) mod letters;
pub(crate) mod listing;
pub(crate) mod paging;
pub(crate) mod policies;
pub(crate) mod protection;
pub(crate) mod replayed;
pub(crate) mod replays;
pub(crate) mod retention;
pub(crate) mod settle;
pub(crate) mod withdrawn;

use std::sync::Arc;

use async_trait::async_trait;
use postrider_store::Store;

pub(crate) use fixture::*;
pub(crate) use listing::all_events;

/// A database of its own for each test.
#[async_trait]
pub(crate) trait Harness: Sized + Send {
    /// A fresh, empty store.
    async fn start() -> Self;
    /// The store.
    fn store(&self) -> Arc<dyn Store>;
    /// Closes the store and opens the same database again.
    async fn restart(self) -> Self;
}

/// Declares every test of the suite for one backend.
macro_rules! conformance_suite {
    ($harness:ty) => {
        $crate::conformance::conformance_suite! { @each $harness,
            directory::tenants_come_and_go,
            directory::pages_of_tenants_are_in_order_of_creation,
            directory::destinations_keep_everything,
            directory::creation_refuses_what_it_must,
            directory::a_change_names_the_revision_it_read,
            directory::everything_is_there_after_a_restart,
            policies::a_named_policy_is_put_and_changed,
            policies::changes_of_policies_are_logged,
            policies::a_policy_in_use_stays,
            policies::there_are_only_so_many,
            accept::bytes_come_back_as_they_went_in,
            accept::an_id_is_used_once_a_tenant,
            accept::an_id_is_free_again_for_a_tenant_that_is_created_again,
            accept::an_issued_id_given_back_is_a_duplicate,
            accept::one_id_published_at_once_is_one_event,
            accept::unknown_tenants_and_destinations_get_no_delivery,
            accept::a_disabled_destination_gets_a_dead_letter,
            accept::ten_thousand_and_one_destinations,
            accept::what_is_accepted_reaches_the_feed,
            accept::keys_grow_when_the_clock_goes_back,
            alerts::an_alert_outlives_a_restart_until_it_is_over_and_published,
            alerts::alerts_are_listed_with_those_that_fire_first,
            alerts::only_so_many_alerts_are_kept_and_none_that_fires_goes,
            alerts::a_key_of_an_alert_grows_when_the_clock_went_back,
            alerts::dead_letters_are_counted_by_destination_and_age,
            lane::due_is_in_order_and_skips_what_the_caller_has,
            lane::a_page_tells_whether_replays_were_passed_over,
            lane::payloads_stop_at_the_budget,
            lane::a_deleted_destination_has_nothing_due,
            lane::deleting_accounts_for_every_delivery,
            listing::an_event_shows_everything,
            filters::filters_of_events,
            filters::a_time_range_finds_times_far_from_acceptance,
            listing::an_attempt_shows_everything,
            filters::filters_of_deliveries_and_attempts,
            listing::deleted_destinations_keep_their_names,
            paging::pages_are_exact_while_rows_arrive,
            protection::a_state_is_kept_until_it_is_replaced_or_forgotten,
            protection::a_hold_is_kept_without_anything_else,
            protection::a_deleted_destination_leaves_no_state,
            protection::a_backlog_is_counted_up_to_a_bound,
            letters::a_dead_letter_says_what_happened,
            letters::filters_of_dead_letters,
            letters::a_summary_counts_groups,
            letters::pages_are_exact_while_letters_come_and_go,
            letters::every_way_to_and_from_dead_is_counted,
            letters::a_purge_removes_what_there_was,
            withdrawn::a_pending_delivery_is_made_a_dead_letter_by_hand,
            withdrawn::a_pending_delivery_is_canceled,
            withdrawn::what_comes_back_after_the_end_is_recorded,
            replays::a_replay_moves_dead_letters_step_by_step,
            replays::a_replay_stops_at_what_is_outstanding,
            replays::a_replay_is_paused_resumed_and_canceled,
            replays::a_delivery_is_in_one_replay_at_a_time,
            replayed::everything_since_covers_what_was_delivered,
            replayed::the_original_configuration_stays_with_the_delivery,
            replayed::what_vanished_before_its_turn_is_skipped,
            replayed::a_result_from_before_the_replay_counts_if_it_is_a_success,
            replays::steps_at_once_move_each_delivery_once,
            replays::a_new_replay_says_what_it_leaves_out,
            replays::a_delivery_says_whether_a_replay_sends_it,
            replays::so_many_replays_are_open_at_most,
            retention::what_is_pending_or_dead_is_never_lost,
            retention::an_id_is_free_again_when_its_event_is_gone,
            retention::keys_of_what_is_gone_are_not_given_again,
            retention::attempts_of_pending_and_dead_deliveries_stay,
            retention::an_event_with_many_deliveries_goes_in_pieces,
            retention::dead_letters_expire_with_what_was_in_force,
            import::a_letter_comes_back_as_it_was,
            import::importing_again_adds_nothing,
            import::a_letter_needs_its_tenant_and_destination,
            import::a_letter_of_another_event_with_that_id_is_refused,
            import::an_event_of_a_former_tenant_is_not_the_letters,
            settle::a_success_ends_the_delivery,
            settle::a_retry_keeps_plan_and_progress_over_a_restart,
            settle::a_deleted_delivery_keeps_its_state_unless_it_arrived,
            settle::a_manual_retry_starts_afresh_whatever_the_status,
            settle::a_verdict_older_than_a_manual_retry_does_not_undo_it,
        }
    };
    (@each $harness:ty, $($module:ident::$name:ident,)+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            $crate::conformance::$module::$name::<$harness>().await;
        }
    )+};
}
pub(crate) use conformance_suite;
