// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users and groups as a backend sends them, with the local overrides. `roster_admission` decides whether they are
//! served.

use roster_admission::{AsGroup, AsUser, OverriddenFields};
use roster_bus::domain_image::{self, NO_REFERENCE};
use roster_config::{PrivateGroups, UserOverride};
use roster_passwd_format as record;

/// References of an entry that no list contains.
pub const NO_REFERENCES: [u32; 2] = [NO_REFERENCE; 2];

/// A gid that no group can have: -1 for system calls.
const NO_GID: u32 = u32::MAX;

/// A user as this host serves it.
#[derive(Clone, PartialEq, Eq)]
pub struct ModelUser {
    /// References of the user in member lists: by DN, and by name.
    pub references: [u32; 2],
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// The user's groups by number, if they were queried.
    pub groups: Option<Box<[u32]>>,
    /// The group that has the user's name and the uid as gid, if the domain may serve one.
    private_group: Option<Box<ModelGroup>>,
    text: Box<[u8]>,
    ends: [u32; 3],
    /// The user as the backend sent it, and the fields that differ. `None` without an override.
    native: Option<Box<(ModelUser, OverriddenFields)>>,
}

impl ModelUser {
    /// Decodes a record.
    pub fn new(user: &domain_image::UserRecord<'_>) -> Self {
        let domain_image::UserRecord { reference, by_name, uid, gid, .. } = *user;
        let texts = [user.name, user.gecos, user.dir, user.shell];
        Self::with_texts([reference, by_name], (uid, gid), texts)
    }

    fn with_texts(references: [u32; 2], (uid, gid): (u32, u32), texts: [&[u8]; 4]) -> Self {
        let mut ends = [0; 3];
        let mut end = 0;
        for (place, text) in ends.iter_mut().zip(texts) {
            end += text.len() as u32; // a record and a configuration are far shorter than 4 GiB
            *place = end;
        }
        let text = texts.concat().into();
        let (groups, private_group, native) = (None, None, None);
        Self { references, uid, gid, groups, private_group, text, ends, native }
    }

    /// Returns the same user with the private group of this kind. A user that always has one gets its gid.
    #[must_use]
    pub fn with_private_group(self, kind: PrivateGroups) -> Self {
        let gid = match kind {
            PrivateGroups::Off => return Self { private_group: None, ..self },
            PrivateGroups::SameId if self.uid != self.gid => {
                return Self { private_group: None, ..self };
            }
            PrivateGroups::SameId | PrivateGroups::Always => self.uid,
        };
        let group = ModelGroup {
            reference: NO_REFERENCE,
            gid: Some(gid),
            name: self.name().into(),
            members: Some(Box::default()),
            native: None,
        };
        Self { gid, private_group: Some(Box::new(group)), ..self }
    }

    /// Returns the private group, without regard to other groups with its gid.
    #[must_use]
    pub fn private_group(&self) -> Option<&ModelGroup> {
        self.private_group.as_deref()
    }

    /// Returns the user with the values of an override.
    #[must_use]
    pub fn overridden(self, values: &UserOverride) -> Self {
        let fields = OverriddenFields {
            name: values.name.is_some(),
            id: values.uid.is_some(),
            primary_gid: values.gid.is_some(),
        };
        let text = |given: &'_ Option<String>, native: &[u8]| -> Vec<u8> {
            given.as_ref().map_or(native, |given| given.as_bytes()).to_vec()
        };
        let texts = [
            text(&values.name, self.name()),
            text(&values.gecos, self.gecos()),
            text(&values.home, self.dir()),
            text(&values.shell, self.shell()),
        ];
        let ids = (values.uid.unwrap_or(self.uid), values.gid.unwrap_or(self.gid));
        let served = Self::with_texts(self.references, ids, texts.each_ref().map(Vec::as_slice));
        let groups = self.groups.clone();
        Self { groups, native: Some(Box::new((self, fields))), ..served }
    }

    /// Returns the user as the backend sent it.
    #[must_use]
    pub fn native(&self) -> &Self {
        self.native.as_ref().map_or(self, |native| &native.0)
    }

    /// Whether a local override applies to the user.
    #[must_use]
    pub fn is_overridden(&self) -> bool {
        self.native.is_some()
    }

    /// Returns the same user with these groups, by number.
    #[must_use]
    pub fn with_groups(self, groups: Option<Box<[u32]>>) -> Self {
        Self { groups, ..self }
    }

    /// Returns the number of bytes of all texts.
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.text.len() + self.native.as_ref().map_or(0, |native| native.0.text.len())
    }

    fn text(&self, from: u32, to: u32) -> &[u8] {
        &self.text[from as usize..to as usize]
    }

    /// Login name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.text(0, self.ends[0])
    }

    /// GECOS.
    #[must_use]
    pub fn gecos(&self) -> &[u8] {
        self.text(self.ends[0], self.ends[1])
    }

    /// Home directory.
    #[must_use]
    pub fn dir(&self) -> &[u8] {
        self.text(self.ends[1], self.ends[2])
    }

    /// Login shell.
    #[must_use]
    pub fn shell(&self) -> &[u8] {
        &self.text[self.ends[2] as usize..]
    }
}

/// A group as the backend sent it, where an override differs.
#[derive(Clone, PartialEq, Eq)]
pub struct NativeGroup {
    /// Group name.
    pub name: Box<[u8]>,
    /// Group id.
    pub gid: Option<u32>,
    /// The fields that the override gives.
    pub fields: OverriddenFields,
}

/// A group as this host serves it.
#[derive(Clone, PartialEq, Eq)]
pub struct ModelGroup {
    /// Reference of the group in member lists, by DN.
    pub reference: u32,
    /// Group id. `None` for a group that only nests: it is neither served nor rejected.
    pub gid: Option<u32>,
    /// Group name.
    pub name: Box<[u8]>,
    /// References of members, if they were queried.
    pub members: Option<Box<[u32]>>,
    /// The group as the backend sent it. `None` without an override.
    pub native: Option<Box<NativeGroup>>,
}

impl ModelGroup {
    /// Returns the number of bytes of all texts.
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.name.len() + self.native.as_ref().map_or(0, |native| native.name.len())
    }

    /// Returns the name in the directory.
    #[must_use]
    pub fn native_name(&self) -> &[u8] {
        self.native.as_ref().map_or(&self.name, |native| &native.name)
    }

    /// Returns the gid in the directory.
    #[must_use]
    pub fn native_gid(&self) -> Option<u32> {
        self.native.as_ref().map_or(self.gid, |native| native.gid)
    }

    /// Returns references of the known members.
    #[must_use]
    pub fn references(&self) -> &[u32] {
        self.members.as_deref().unwrap_or_default()
    }
}

impl AsUser for ModelUser {
    fn as_user(&self) -> record::User<'_> {
        record::User {
            name: self.name(),
            passwd: None,
            uid: self.uid,
            gid: self.gid,
            gecos: Some(self.gecos()),
            dir: Some(self.dir()),
            shell: Some(self.shell()),
        }
    }

    fn overridden(&self) -> OverriddenFields {
        self.native.as_ref().map(|native| native.1).unwrap_or_default()
    }
}

impl AsGroup for ModelGroup {
    fn name(&self) -> &[u8] {
        &self.name
    }

    /// The rules reject the gid of a group that only nests.
    fn gid(&self) -> u32 {
        self.gid.unwrap_or(NO_GID)
    }

    fn overridden(&self) -> OverriddenFields {
        self.native.as_ref().map(|native| native.fields).unwrap_or_default()
    }
}

/// A user or a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ModelEntry<'a> {
    /// A user.
    User(&'a ModelUser),
    /// A group.
    Group(&'a ModelGroup),
}

impl ModelEntry<'_> {
    /// Whether a local override gives the name or the id of the entry.
    #[must_use]
    pub fn has_given_identity(&self) -> bool {
        let fields = match self {
            Self::User(user) => user.overridden(),
            Self::Group(group) => group.overridden(),
        };
        fields.name || fields.id
    }

    /// References of the entry in member lists; [`NO_REFERENCE`] if lists do not contain it.
    #[must_use]
    pub fn references(&self) -> [u32; 2] {
        match self {
            Self::User(user) => user.references,
            Self::Group(group) => [group.reference, NO_REFERENCE],
        }
    }
}
