//! Named retry policies: store first, then memory, then every destination that uses them.
//!
//! A change reaches attempts that are planned from then on; those that are planned already keep their time, because their
//! plans are rows of the store and not of the policy.

use std::sync::Arc;

use postrider_core::policy::{
    Effective, Layer, Origin, Policies, Problem, RawPolicy, RetryPolicy, Unread, check_name, resolve,
};
use postrider_core::time::Timestamp;
use postrider_store::record::{PolicyDeleted, PolicyPut};

use super::change::ChangeError;
use super::target::Target;
use super::{Directory, Entry, Rules};

/// Named policies that there may be.
pub const MAX_POLICIES: u32 = 1_000;

impl Directory {
    /// The policy of a destination with this `retry_policy` (JSON text; the global one without), and the origin of each
    /// value.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn effective_policy(&self, text: Option<&str>) -> Result<Effective, Vec<Problem>> {
        let rules = self.rules();
        match text {
            Some(text) => rules.policies.read_effective(text),
            None => rules.policies.effective(None),
        }
    }

    /// Creates or replaces a named policy.
    ///
    /// # Errors
    /// [`ChangeError::Invalid`], [`ChangeError::Store`] and [`ChangeError::Interrupted`].
    pub async fn put_policy(
        self: &Arc<Self>,
        name: String,
        policy: RawPolicy,
        now: Timestamp,
    ) -> Result<PolicyPut, ChangeError> {
        self.carry_out(async move |directory| {
            let _guard = directory.locks.policies.write().await;
            let mut policies = directory.rules().policies.clone();
            let compiled = check(&policies, &name, &policy)?;
            let text = serde_json::to_string(&policy).map_err(|error| {
                ChangeError::Invalid(vec![format!("retry_policy cannot be written: {error}")])
            })?;
            let put = directory
                .store
                .put_retry_policy(&name, &text, MAX_POLICIES, now)
                .await?;
            if put != PolicyPut::LimitReached {
                policies.named.insert(name.clone(), policy);
                directory.replace_policies(policies);
                directory.install_policy(&name, &Arc::new(compiled));
            }
            Ok(put)
        })
        .await
    }

    /// Everything that is wrong with a named policy that cannot be read whole.
    #[must_use]
    pub fn refuse_policy(&self, name: &str, unread: Unread) -> ChangeError {
        let mut problems: Vec<Problem> = check_name(name).err().into_iter().collect();
        problems.extend(self.rules().policies.problems(unread));
        ChangeError::Invalid(problems.iter().map(ToString::to_string).collect())
    }

    /// Deletes a named policy that no destination uses.
    ///
    /// # Errors
    /// [`ChangeError::Store`] and [`ChangeError::Interrupted`].
    pub async fn delete_policy(
        self: &Arc<Self>,
        name: String,
        now: Timestamp,
    ) -> Result<PolicyDeleted, ChangeError> {
        self.carry_out(async move |directory| {
            let _guard = directory.locks.policies.write().await;
            let deleted = directory.store.delete_retry_policy(&name, now).await?;
            if deleted == PolicyDeleted::Deleted {
                let mut policies = directory.rules().policies.clone();
                policies.named.remove(&name);
                directory.replace_policies(policies);
            }
            Ok(deleted)
        })
        .await
    }

    fn replace_policies(&self, policies: Policies) {
        let rules = Rules {
            policies,
            ..(*self.rules()).clone()
        };
        *self.rules.write() = Arc::new(rules);
    }

    /// Gives the policy to every destination that names it.
    fn install_policy(&self, name: &str, policy: &Arc<RetryPolicy>) {
        let users = self.index.read().with_policy(&format!("\"{name}\""));
        let changed: Vec<_> = users
            .iter()
            .map(|old| {
                let target = Target {
                    policy: Arc::clone(policy),
                    ..(*old.target).clone()
                };
                Arc::new(Entry::new(old.record.clone(), target))
            })
            .collect();
        let mut index = self.index.write();
        for (old, changed) in users.iter().zip(changed) {
            let is_there = index
                .entry(old.record.key)
                .is_some_and(|entry| Arc::ptr_eq(entry, old));
            if is_there {
                index.put(changed);
            }
        }
    }
}

/// The policy as destinations would use it.
fn check(policies: &Policies, name: &str, policy: &RawPolicy) -> Result<RetryPolicy, ChangeError> {
    let layers = [
        Layer {
            origin: Origin::Global,
            policy: &policies.global,
        },
        Layer {
            origin: Origin::Named(name.to_owned()),
            policy,
        },
    ];
    let texts = |problems: Vec<Problem>| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut faults = check_name(name)
        .err()
        .map_or_else(Vec::new, |problem| vec![problem.to_string()]);
    match resolve(&layers) {
        Ok(effective) if faults.is_empty() => return Ok(effective.policy),
        Ok(_) => {}
        Err(problems) => faults.extend(texts(problems)),
    }
    Err(ChangeError::Invalid(faults))
}
