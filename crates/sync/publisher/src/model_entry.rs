// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users and groups as a backend sends them.

use roster_admission::{AsGroup, AsUser};
use roster_bus::domain_image::{self, NO_REFERENCE};
use roster_config::PrivateGroups;
use roster_passwd_format as record;

/// References of an entry that no list contains.
pub const NO_REFERENCES: [u32; 2] = [NO_REFERENCE; 2];

/// A gid that no group can have: -1 for system calls.
const NO_GID: u32 = u32::MAX;

/// A user as the backend sent it.
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
}

impl ModelUser {
    /// Decodes a record.
    pub fn new(user: &domain_image::UserRecord<'_>) -> Self {
        let texts = [user.name, user.gecos, user.dir, user.shell];
        let mut ends = [0; 3];
        let mut end = 0;
        for (place, text) in ends.iter_mut().zip(texts) {
            end += text.len() as u32; // each is at most 65,535 long
            *place = end;
        }
        let domain_image::UserRecord { reference, by_name, uid, gid, .. } = *user;
        let references = [reference, by_name];
        let text = texts.concat().into();
        Self { references, uid, gid, groups: None, private_group: None, text, ends }
    }

    /// Returns the same user with the private group of this kind. A user that always has one gets its gid.
    #[must_use]
    pub fn with_private_group(self, kind: PrivateGroups) -> Self {
        let gid = match kind {
            PrivateGroups::Off => return self,
            PrivateGroups::SameId if self.uid != self.gid => return self,
            PrivateGroups::SameId | PrivateGroups::Always => self.uid,
        };
        let group = ModelGroup {
            reference: NO_REFERENCE,
            gid: Some(gid),
            name: self.name().into(),
            members: Some(Box::default()),
        };
        Self { gid, private_group: Some(Box::new(group)), ..self }
    }

    /// Returns the private group, without regard to other groups with its gid.
    #[must_use]
    pub fn private_group(&self) -> Option<&ModelGroup> {
        self.private_group.as_deref()
    }

    /// Returns the same user with these groups, by number.
    #[must_use]
    pub fn with_groups(self, groups: Option<Box<[u32]>>) -> Self {
        Self { groups, ..self }
    }

    /// Returns the number of bytes of all texts.
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.text.len()
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

/// A group as the backend sent it.
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
}

impl ModelGroup {
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
}

impl AsGroup for ModelGroup {
    fn name(&self) -> &[u8] {
        &self.name
    }

    /// The rules reject the gid of a group that only nests.
    fn gid(&self) -> u32 {
        self.gid.unwrap_or(NO_GID)
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
    /// References of the entry in member lists; [`NO_REFERENCE`] if lists do not contain it.
    #[must_use]
    pub fn references(&self) -> [u32; 2] {
        match self {
            Self::User(user) => user.references,
            Self::Group(group) => [group.reference, NO_REFERENCE],
        }
    }
}
