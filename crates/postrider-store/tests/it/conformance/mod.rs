//! What every backend promises, whatever it is made of.
//!
//! A backend brings a [`Harness`] and one line of [`conformance_suite`]; nothing here names one.

pub(crate) mod accept;
pub(crate) mod alerts;
pub(crate) mod directory;
pub(crate) mod filters;
mod fixture;
pub(crate) mod lane;
pub(crate) mod listing;
pub(crate) mod paging;
pub(crate) mod policies;
pub(crate) mod protection;
pub(crate) mod settle;

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
            protection::a_deleted_destination_leaves_no_state,
            protection::a_backlog_is_counted_up_to_a_bound,
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
