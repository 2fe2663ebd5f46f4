//! One log-in, or one change of a password, from the request to the reply: what is asked of the KDC,
//! and in which order. In a process of its own, which ends with it.

use crate::library::{
    Cache, Changed, Context, Credentials, Error, Granted, Keytab, Principal, Wishes,
};
use roster_krb5::message::{Reply, Request, Setup, Want};
use roster_krb5::outcome::{
    Outcome, advice, is_without_fast, of_log_in, of_presence, of_verification,
};
use std::ffi::{CStr, CString};
use std::time::Duration;
use zeroize::Zeroizing;

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

/// What became of a change of a password.
enum Change<'c> {
    /// It was not begun, by this refusal; and whether a KDC that knows this host's key is there to have said so.
    NotBegun(Refusal, bool),
    /// The server was asked, and has not said that it is done; and whether the old password is seen to be the right one still.
    NotDone(Refusal, bool),
    /// It is done, and the new password has got a ticket.
    Shown(Granted<'c>),
    /// It is done as far as was said, and nothing has shown that the new password is the right one.
    Unshown(Refusal),
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

    fn into_reply(self, id: u64) -> Reply {
        let Self { outcome, words, detail } = self;
        Reply { words, ..Reply::of(id, outcome, detail) }
    }
}

impl<'c> Attempt<'c> {
    /// What becomes of a request. `early` is told what is known already while there is more to be done, which
    /// counts if nothing more is said.
    pub fn run(&self, request: &Request, early: &mut dyn FnMut(&Reply)) -> Reply {
        let client = if request.is_principal {
            self.context.principal(&request.name)
        } else {
            self.context.user(&request.name, &self.setup.realm.name)
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
            Want::Ticket => self.log_in(&client, &request.password).map(Some),
            Want::MayChange => self.may_change(&client, &request.password).map(|()| None),
            Want::Change => return self.changed(request, &client, early),
        };
        match done {
            Ok(granted) => self.granting(request, &client, granted.as_ref()),
            Err(refusal) => {
                let is_sure = request.want == Want::Ticket && self.is_sure(refusal.outcome);
                Reply { is_sure, ..refusal.into_reply(request.id) }
            }
        }
    }

    /// The reply to what was granted, with a ticket if there is one. It is sure when the KDC has shown by
    /// this ticket that it knows this host's key: an unverified KDC may be anybody's.
    fn granting(
        &self,
        request: &Request,
        client: &Principal<'_>,
        granted: Option<&Granted<'_>>,
    ) -> Reply {
        Reply {
            is_sure: granted.is_some() && self.keytab.is_some(),
            password_expires: granted.map_or(0, |granted| granted.password_expires),
            ticket: granted.map(|granted| granted.tickets.to_file()).unwrap_or_default(),
            principal: client.text().unwrap_or_default(),
            ..Reply::of(request.id, Outcome::Success, "")
        }
    }

    /// The reply to a change of a password. That it is done is said before anything else is tried: what comes
    /// then may last longer than there is time for.
    fn changed(
        &self,
        request: &Request,
        client: &Principal<'_>,
        early: &mut dyn FnMut(&Reply),
    ) -> Reply {
        let unshown = || self.granting(request, client, None);
        let change = self.change(client, &request.password, &request.new_password, &mut || {
            early(&unshown());
        });
        match change {
            Change::NotBegun(refusal, is_sure) => {
                Reply { is_undone: true, is_sure, ..refusal.into_reply(request.id) }
            }
            Change::NotDone(refusal, is_undone) => {
                Reply { is_undone, ..refusal.into_reply(request.id) }
            }
            Change::Shown(granted) => self.granting(request, client, Some(&granted)),
            // Another KDC may have said that it is done.
            Change::Unshown(refusal) if refusal.outcome == Outcome::NotVerified => {
                refusal.into_reply(request.id)
            }
            Change::Unshown(refusal) => Reply {
                detail: format!(
                    "the password was changed; a ticket by the new one: {}",
                    refusal.detail
                ),
                ..unshown()
            },
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

    fn log_in(&self, client: &Principal<'_>, password: &[u8]) -> Result<Granted<'c>, Refusal> {
        let wishes = self.wishes();
        let granted = self.context.log_in(client, &secret(password)?, None, &wishes, None);
        match granted {
            Ok(mut granted) => {
                self.verify(&mut granted.tickets)?;
                Ok(granted)
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
        self.ask_for_changer(client, &secret(password)?, armor)
            .map_err(|error| not_a_changer(&error))
    }

    /// The same under that armor, unless the KDC does not know how.
    fn armored_changer(
        &self,
        client: &Principal<'_>,
        password: &[u8],
        armor: Option<&Cache<'_>>,
    ) -> Result<Credentials<'c>, Refusal> {
        let password = secret(password)?;
        let asked = match self.ask_for_changer(client, &password, armor) {
            Err(error) if is_without_fast(error.code) => {
                self.ask_for_changer(client, &password, None)
            }
            asked => asked,
        };
        asked.map_err(|error| not_a_changer(&error))
    }

    fn ask_for_changer(
        &self,
        client: &Principal<'_>,
        password: &CStr,
        armor: Option<&Cache<'_>>,
    ) -> Result<Credentials<'c>, Error> {
        let wishes = Wishes { life: Some(CHANGEPW_LIFE), ..Wishes::default() };
        let granted = self.context.log_in(client, password, Some(CHANGEPW), &wishes, armor);
        granted.map(|granted| granted.tickets)
    }

    /// Whether the password may be changed by who knows this one.
    fn may_change(&self, client: &Principal<'_>, password: &[u8]) -> Result<(), Refusal> {
        let armor = self.armor()?;
        self.armored_changer(client, password, armor.as_ref()).map(drop)
    }

    /// `done` is told when it is done, before that is made sure of.
    fn change(
        &self,
        client: &Principal<'_>,
        old: &[u8],
        new: &[u8],
        done: &mut dyn FnMut(),
    ) -> Change<'c> {
        // A KDC that does not know this host's key is not asked.
        let armor = match self.armor() {
            Ok(armor) => armor,
            Err(refusal) => return Change::NotBegun(refusal, false),
        };
        let begun = secret(new)
            .and_then(|new| Ok((new, self.armored_changer(client, old, armor.as_ref())?)));
        let (password, mut tickets) = match begun {
            Ok(begun) => begun,
            Err(refusal) => return Change::NotBegun(refusal, armor.is_some()),
        };
        let refusal = match self.context.change_password(&mut tickets, &password) {
            Ok(Changed::Done) => {
                done();
                return match self.log_in(client, new) {
                    Ok(granted) => Change::Shown(granted),
                    Err(refusal) => Change::Unshown(refusal),
                };
            }
            Ok(Changed::Refused { code, why }) => {
                let detail = format!("the change of the password was refused ({code}): {why}");
                Refusal { outcome: of_change(code), words: why, detail }
            }
            Err(error) => {
                let outcome = of_log_in(error.code);
                Refusal::new(outcome, "the server that changes passwords", &error)
            }
        };
        // Anybody can send a refusal, and keep back that it is done.
        let is_undone = match self.log_in(client, old) {
            Ok(_) => true,
            Err(refusal) => refusal.outcome == Outcome::MustChange,
        };
        Change::NotDone(refusal, is_undone)
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

/// Why there is no ticket to change a password by.
fn not_a_changer(error: &Error) -> Refusal {
    let outcome = match of_log_in(error.code) {
        // Not even for a change.
        Outcome::MustChange => Outcome::Refused,
        outcome => outcome,
    };
    Refusal::new(outcome, "the KDC, asked for a ticket to change the password", error)
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

/// A password as C has it. Those with a NUL were refused with the message that they stood in.
fn secret(password: &[u8]) -> Result<Zeroizing<CString>, Refusal> {
    CString::new(password).map(Zeroizing::new).map_err(|_| Refusal {
        outcome: Outcome::Failed,
        words: String::new(),
        detail: "there is a NUL in the password".to_owned(),
    })
}
