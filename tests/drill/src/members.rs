//! The masters that a client is configured with: a list, or groups.

use std::fmt;

use quorlock::{Builder, Group, Groups, GroupsError};

/// The URLs of some masters, and the ID of their group. Masters without groups are one such list.
#[derive(Clone, Debug, PartialEq)]
pub struct List {
    pub group: Option<String>,
    pub urls: Vec<String>,
}

/// All masters that a client uses, or all that it leaves. As text, `a=URL,URL;b=URL,URL`, or
/// `URL,URL` without groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members(pub Vec<List>);

impl Members {
    /// Returns masters without groups.
    pub fn ungrouped(urls: Vec<String>) -> Self {
        Self(vec![List { group: None, urls }])
    }

    pub fn parse(text: &str) -> Self {
        let lists = text.split(';').filter(|list| !list.is_empty());
        let lists = lists.map(|list| {
            let (group, urls) = match list.split_once('=') {
                Some((group, urls)) => (Some(group.to_owned()), urls),
                None => (None, list),
            };
            let urls = urls.split(',').map(str::to_owned).collect();
            List { group, urls }
        });
        Self(lists.collect())
    }

    /// Returns the IDs of the groups.
    pub fn ids(&self) -> String {
        let ids = self.0.iter().flat_map(|list| list.group.as_deref());
        ids.collect::<Vec<_>>().join(" ")
    }

    /// Connects to these masters. While they are changed, `leaving` has the old ones.
    pub fn open(&self, settings: Builder, leaving: &Self) -> Result<Groups, GroupsError> {
        Groups::change(settings, self.groups(), leaving.groups())
    }

    /// Returns the groups. The only group of a list has a coordinator as without groups.
    fn groups(&self) -> impl Iterator<Item = Group> {
        let lists = self.0.iter();
        lists.map(|list| Group::new(list.group.as_deref().unwrap_or("all"), &list.urls))
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, list) in self.0.iter().enumerate() {
            let between = if at == 0 { "" } else { ";" };
            f.write_str(between)?;
            if let Some(group) = &list.group {
                write!(f, "{group}=")?;
            }
            f.write_str(&list.urls.join(","))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_read_back() {
        let list = |group: Option<&str>, urls: &[&str]| List {
            group: group.map(str::to_owned),
            urls: urls.iter().map(ToString::to_string).collect(),
        };
        let url = "redis://127.0.0.1:1";
        for (lists, text) in [
            (vec![], ""),
            (
                vec![list(None, &[url, url])],
                "redis://127.0.0.1:1,redis://127.0.0.1:1",
            ),
            (
                vec![list(Some("a"), &[url]), list(Some("b"), &[url, url])],
                "a=redis://127.0.0.1:1;b=redis://127.0.0.1:1,redis://127.0.0.1:1",
            ),
        ] {
            let members = Members(lists);
            assert_eq!(members.to_string(), text);
            assert_eq!(Members::parse(text), members);
        }
    }
}
