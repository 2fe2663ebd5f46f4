//! One log-in, or one change of a password, from the request to the reply: what is asked of the KDC,
//! and in which order. In a process of its own, which ends with it.

use crate::library::{
    Cache, Changed, Context, Credentials, Error, Granted, Keytab, Principal, Wishes,
};
use roster_krb5::message::{Reply, Request, Setup, Want};
use roster_krb5::outcome::{Outcome, advice, of_log_in, of_presence, of_verification};
use std::ffi::{CStr, CString};
use std::time::Duration;

/// The service that passwords are changed by.
const CHANGEPW: &CStr = c"kadmin/changepw";
/// Its tickets are used at once.
const CHANGEPW_LIFE: Duration = Duration::from_secs(5 * 60);

/// Who asks, and by what.
pub struct Attempt<'c> {
    pub context: &'c Context,
    pub setup: &'c Setup,
    /// Keys of this host, which the KDC has to know.
    pub keytab: Option<&'c Keytab<'c>>,
}

/// Why there is nothing to hand on.
struct Refusal {
    outcome: Outcome,
    words: String,
    detail: String,
}

impl Refusal {
    fn new(outcome: Outcome, what: &str, error: &Error) -> Self {
        let advice = advice(error.code);
        let detail = match advice {
            "" => format!("{what}: {error}"),
            advice => format!("{what}: {error}; {advice}"),
        };
        Self { outcome, words: String::new(), detail }
    }
}

impl<'c> Attempt<'c> {
    /// What becomes of a request.
    pub fn run(&self, request: &Request) -> Reply {
        let client = if request.is_principal {
            self.context.principal(&request.name)
        } else {
            self.context.user(&request.name, &self.setup.realm)
        };
        let client = match client {
            Ok(client) => client,
            Err(error) => {
                let what = format!("this is no principal: {error}");
                return Reply::of(request.id, Outcome::UnknownUser, what);
            }
        };
        let done = match request.want {
            Want::Presence => self.is_there(&client, &request.password).map(|()| None),
            Want::Ticket => self.log_in(&client, &request.password),
            Want::MayChange => self.changer(&client, &request.password, None).map(|_| None),
            Want::Change => self.change(&client, &request.password, &request.new_password),
        };
        match done {
            Ok(granted) => Reply {
                password_expires: granted.as_ref().map_or(0, |granted| granted.password_expires),
                ticket: granted.map(|granted| granted.tickets.to_file()).unwrap_or_default(),
                principal: client.text().unwrap_or_default(),
                ..Reply::of(request.id, Outcome::Success, "")
            },
            Err(Refusal { outcome, words, detail }) => {
                let is_sure = request.want == Want::Ticket && self.is_sure(outcome);
                Reply { words, is_sure, ..Reply::of(request.id, outcome, detail) }
            }
        }
    }

    /// Whether a refusal may be taken for more than that. Anybody on the network can send one; a KDC that gives
    /// a ticket by this host's key is the one whose word counts.
    fn is_sure(&self, outcome: Outcome) -> bool {
        match outcome {
            // Only said when it was shown, if there is a key to show it by.
            Outcome::MustChange => self.keytab.is_some(),
            Outcome::WrongPassword
            | Outcome::UnknownUser
            | Outcome::Locked
            | Outcome::AccountExpired
            | Outcome::Refused => matches!(self.armor(), Ok(Some(_))),
            _ => false,
        }
    }

    /// Whether any KDC says anything.
    fn is_there(&self, client: &Principal<'_>, password: &[u8]) -> Result<(), Refusal> {
        let wishes = Wishes::default();
        let granted = self.context.log_in(client, &secret(password)?, None, &wishes, None);
        let refusal = |error: Error| Refusal::new(of_presence(error.code), "the KDC", &error);
        granted.map(drop).map_err(refusal)
    }

    fn log_in(
        &self,
        client: &Principal<'_>,
        password: &[u8],
    ) -> Result<Option<Granted<'c>>, Refusal> {
        let wishes = self.wishes();
        let granted = self.context.log_in(client, &secret(password)?, None, &wishes, None);
        match granted {
            Ok(mut granted) => {
                self.verify(&mut granted.tickets)?;
                Ok(Some(granted))
            }
            Err(error) if of_log_in(error.code) == Outcome::MustChange => {
                // A KDC says so before it looks at the password. One that is right gets a ticket for
                // the change, and none for anything else: none that this host's key could verify the
                // KDC by. So the KDC is asked under that key.
                let armor = self.armor()?;
                self.changer(client, password, armor.as_ref())?;
                Err(Refusal::new(Outcome::MustChange, "the KDC", &error))
            }
            Err(error) => Err(Refusal::new(of_log_in(error.code), "the KDC", &error)),
        }
    }

    /// Whether the KDC is the one that this host has a key from: anybody can stand in its place, and
    /// give out tickets for a password of their own choice.
    fn verify(&self, tickets: &mut Credentials<'_>) -> Result<(), Refusal> {
        let Some(keytab) = self.keytab else { return Ok(()) };
        let verified = tickets.verify(keytab);
        verified.map_err(|error| {
            let what = "the KDC could not be verified by this host's key";
            Refusal::new(of_verification(error.code), what, &error)
        })
    }

    fn armor(&self) -> Result<Option<Cache<'c>>, Refusal> {
        let Some(keytab) = self.keytab else { return Ok(None) };
        let armor = self.context.armor(keytab);
        armor.map(Some).map_err(|error| {
            let outcome = of_verification(error.code);
            Refusal::new(outcome, "the KDC gives this host no ticket by its key", &error)
        })
    }

    /// A ticket by which the password may be changed.
    fn changer(
        &self,
        client: &Principal<'_>,
        password: &[u8],
        armor: Option<&Cache<'_>>,
    ) -> Result<Credentials<'c>, Refusal> {
        let wishes = Wishes { life: Some(CHANGEPW_LIFE), ..Wishes::default() };
        let password = secret(password)?;
        let granted = self.context.log_in(client, &password, Some(CHANGEPW), &wishes, armor);
        granted.map(|granted| granted.tickets).map_err(|error| {
            let outcome = match of_log_in(error.code) {
                // Not even for a change.
                Outcome::MustChange => Outcome::Refused,
                outcome => outcome,
            };
            Refusal::new(outcome, "the KDC, asked for a ticket to change the password", &error)
        })
    }

    fn change(
        &self,
        client: &Principal<'_>,
        old: &[u8],
        new: &[u8],
    ) -> Result<Option<Granted<'c>>, Refusal> {
        let mut tickets = self.changer(client, old, None)?;
        let changed = self.context.change_password(&mut tickets, &secret(new)?);
        let changed = changed.map_err(|error| {
            Refusal::new(of_log_in(error.code), "the server that changes passwords", &error)
        })?;
        match changed {
            Changed::Done => {}
            Changed::Refused { code, why } => {
                let outcome = of_change(code);
                let detail = format!("the change of the password was refused ({code}): {why}");
                return Err(Refusal { outcome, words: why, detail });
            }
        }
        // The new password gets the ticket that the old one could not, and shows whether this was the
        // right KDC. A replica may not know it yet: without a key of this host nothing depends on it.
        match self.log_in(client, new) {
            Err(_) if self.keytab.is_none() => Ok(None),
            granted => granted,
        }
    }

    fn wishes(&self) -> Wishes {
        let seconds = |seconds: u32| match seconds {
            0 => None,
            seconds => Some(Duration::from_secs(seconds.into())),
        };
        Wishes {
            life: seconds(self.setup.life_seconds),
            renewable: seconds(self.setup.renewable_seconds),
            forwardable: self.setup.forwardable,
        }
    }
}

/// What a server that changes passwords means, by the codes of RFC 3244.
fn of_change(code: i32) -> Outcome {
    match code {
        // It failed there, and may not the next time.
        2 => Outcome::Failed,
        3 => Outcome::WrongPassword,
        4 => Outcome::NewPasswordRefused,
        5 | 7 => Outcome::Refused,
        1 | 6 => Outcome::Misconfigured,
        _ => Outcome::Failed,
    }
}

/// A password as C has it; this process ends with it. Those with a NUL were refused with the message that
/// they stood in.
fn secret(password: &[u8]) -> Result<CString, Refusal> {
    CString::new(password).map_err(|_| Refusal {
        outcome: Outcome::Failed,
        words: String::new(),
        detail: "there is a NUL in the password".to_owned(),
    })
}
