//! Lists of masters as people write them: masters, or groups of masters.

use std::{collections::BTreeMap, mem, sync::Arc};

use quorlock::{Builder, ConfigError, Coordinator, Group, MasterSpec};
use serde::Deserialize;

/// A list of masters, or of groups of masters.
#[derive(Clone, Default, Deserialize)]
#[serde(from = "Vec<MasterSpec>")]
pub(crate) struct Listed {
    parts: Vec<Part>,
}

/// A group of masters, or the masters of a list without groups.
#[derive(Clone)]
struct Part {
    /// The ID of the group. `None` without groups.
    id: Option<String>,
    weight: u32,
    masters: Vec<MasterSpec>,
}

/// The group of masters that are listed without one, while the other list has groups.
pub(crate) const ALL: &str = "all";

/// What a group may be called in a list.
pub(crate) const FORM: &str = "ID or ID:WEIGHT, with an ID of up to 64 letters a-z A-Z 0-9 - _ .";

impl Listed {
    /// Reads the values of options, or of a variable. A word that begins with `ID=` or `ID:WEIGHT=`
    /// begins a group. Or says what is wrong, without a secret.
    pub(crate) fn read<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let (mut masters, mut groups) = (Vec::new(), Vec::<Part>::new());
        for url in texts.into_iter().flat_map(MasterSpec::split) {
            let name = url.split_once("://").and_then(|(start, _)| {
                let (name, _) = start.split_once('=')?;
                Some(name)
            });
            if let Some(name) = name {
                let group = Part::group(name, Vec::new());
                let number = groups.len() + 1;
                groups.push(group.ok_or_else(|| {
                    // A URL in the place of a name may contain a password.
                    format!("group {number}: its name is not {FORM}")
                })?);
            }
            let url = name.map_or(url, |name| &url[name.len() + 1..]);
            let list = groups.last_mut().map(|group| &mut group.masters);
            list.unwrap_or(&mut masters).push(MasterSpec::from(url));
        }
        match (masters.is_empty(), groups.is_empty()) {
            (_, true) => Ok(Self::from(masters)),
            (true, false) => Ok(Self { parts: groups }),
            (false, false) => Err(
                "master 1: it is in no group, and others are; begin with a group, such as \
                 a=redis://10.0.0.1"
                    .to_owned(),
            ),
        }
    }

    /// Returns the groups of a table, or `None` if the name of one has another form.
    pub(crate) fn of_table(table: BTreeMap<String, Vec<MasterSpec>>) -> Option<Self> {
        let groups = table.into_iter();
        let groups = groups.map(|(name, masters)| Part::group(&name, masters));
        let parts = groups.collect::<Option<_>>()?;
        Some(Self { parts })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) fn has_groups(&self) -> bool {
        self.parts.iter().any(|part| part.id.is_some())
    }

    /// Returns all masters, group by group.
    pub(crate) fn masters(&self) -> impl Iterator<Item = &MasterSpec> {
        self.parts.iter().flat_map(|part| &part.masters)
    }

    /// Returns the masters of each group, with the name of the group. Masters without groups have
    /// none.
    pub(crate) fn addresses(&self) -> Vec<(Option<&str>, Vec<Arc<str>>)> {
        let parts = self.parts.iter();
        let parts = parts.map(|part| (part.id.as_deref(), part.addresses()));
        parts.collect()
    }

    /// Returns a line for each group, and one for masters without groups.
    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.parts.iter().map(|part| {
            let masters = part.addresses().join(", ");
            match (&part.id, part.weight) {
                (Some(id), 1) => format!("{id}: {masters}"),
                (Some(id), weight) => format!("{id} (weight {weight}): {masters}"),
                (None, _) => masters,
            }
        });
        lines.collect()
    }

    /// Changes each master.
    pub(crate) fn map(mut self, change: impl Fn(MasterSpec) -> MasterSpec) -> Self {
        for part in &mut self.parts {
            let masters = mem::take(&mut part.masters).into_iter();
            part.masters = masters.map(&change).collect();
        }
        self
    }

    fn into_groups(self) -> impl Iterator<Item = Group> {
        self.parts.into_iter().map(|part| {
            let id = part.id.unwrap_or_else(|| ALL.to_owned());
            Group::new(id, part.masters).weight(part.weight)
        })
    }
}

impl From<Vec<MasterSpec>> for Listed {
    fn from(masters: Vec<MasterSpec>) -> Self {
        let all = (!masters.is_empty()).then(|| Part {
            id: None,
            weight: 1,
            masters,
        });
        Self {
            parts: all.into_iter().collect(),
        }
    }
}

impl Part {
    /// Returns the group called `ID` or `ID:WEIGHT`, or `None` if the name has another form.
    fn group(name: &str, masters: Vec<MasterSpec>) -> Option<Self> {
        let (id, weight) = match name.split_once(':') {
            Some((id, weight)) => (id, weight.parse().ok()?),
            None => (name, 1),
        };
        is_name(id).then(|| Self {
            id: Some(id.to_owned()),
            weight,
            masters,
        })
    }

    fn addresses(&self) -> Vec<Arc<str>> {
        let addresses = self.masters.iter().map(MasterSpec::address);
        addresses.filter_map(Result::ok).collect()
    }
}

/// Returns whether a text looks like the name of a group, a set or a setting, and not like a URL.
pub(crate) fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.is_empty() && text.len() <= 64 && text.chars().all(is_part)
}

/// Returns the builder with both lists. If one of them has groups, the masters of the other are a
/// group, too.
pub(crate) fn with_lists(builder: Builder, masters: Listed, leaving: Listed) -> Builder {
    if !(masters.has_groups() || leaving.has_groups()) {
        let builder = builder.masters(masters.masters().cloned());
        return builder.leaving(leaving.masters().cloned());
    }
    let builder = builder.groups(masters.into_groups());
    builder.leaving_groups(leaving.into_groups())
}

/// Returns a coordinator that only answers questions about the lists: it dials nobody.
pub(crate) fn undialled(masters: &Listed, leaving: &Listed) -> Result<Coordinator, ConfigError> {
    let builder = Coordinator::builder().dial_at_first_use(true);
    with_lists(builder, masters.clone(), leaving.clone()).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(texts: &[&str]) -> Result<String, String> {
        let listed = Listed::read(texts.iter().copied())?;
        Ok(listed.lines().join("; "))
    }

    #[test]
    fn a_list_may_have_groups() {
        for (texts, expected) in [
            (&[][..], ""),
            (&["redis://x,redis://y"], "x:6379, y:6379"),
            (
                &["a=redis://x,redis://y b:2=redis://z"],
                "a: x:6379, y:6379; b (weight 2): z:6379",
            ),
            (
                &["a=redis://x", " redis://y ", ",b-1.c_d:1=redis://z,"],
                "a: x:6379, y:6379; b-1.c_d: z:6379",
            ),
            (&["redis://u:p=w@x"], "x:6379"), // a URL keeps its equals sign
            (&["a=redis://u:p=w@x"], "a: x:6379"),
        ] {
            assert_eq!(shown(texts).as_deref(), Ok(expected), "{texts:?}");
        }
    }

    /// Another password or another path would be used, without a word.
    #[test]
    fn a_url_is_never_changed() {
        for (text, expected) in [
            ("redis://v:a b@x", "x:6379"),
            ("unix:///a  b/r.sock", "unix:/a  b/r.sock"),
            ("unix:///a b/r.sock redis://x", "unix:/a b/r.sock, x:6379"),
            (
                "unix:///a,,b/r.sock, redis://x",
                "unix:/a,,b/r.sock, x:6379",
            ),
        ] {
            assert_eq!(shown(&[text]).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_wrong_group_is_named_by_its_number() {
        let long = format!("{}=redis://x", "a".repeat(65));
        for (text, number) in [
            ("=redis://x", 1),
            (":2=redis://x", 1),
            ("a:=redis://x", 1),
            ("a:b=redis://x", 1),
            ("a:2:3=redis://x", 1),
            ("a=redis://x b->c=redis://y", 2),
            ("a=redis://x user:hunter2@h=redis://y", 2),
            (&long, 1),
        ] {
            let why = format!("group {number}: its name is not {FORM}");
            assert_eq!(shown(&[text]), Err(why), "{text}");
        }
        let mixed = shown(&["redis://x a=redis://y"]);
        assert!(
            mixed
                .unwrap_err()
                .starts_with("master 1: it is in no group")
        );
    }
}
