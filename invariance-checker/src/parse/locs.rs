//! Locations: read as printed, then resolved through the file's aliases into the module's table.

use super::cursor::{Cursor, Result};
use super::error::ParseError;
use crate::ir::{LocId, Location, Place};
use std::collections::HashMap;

/// Longest chain of aliases and nested locations.
const MAX_CHAIN: usize = 256;

/// A location as printed.
#[derive(Clone, Debug)]
pub(super) enum RawLoc<'a> {
    /// Not printed, or `unknown`.
    Unknown,
    /// `#loc12`, with where that stands.
    Alias(&'a str, usize),
    Place(Place),
    Name(String, Box<RawLoc<'a>>),
    CallSite(Box<RawLoc<'a>>, Box<RawLoc<'a>>),
    Fused(Vec<RawLoc<'a>>),
}

impl<'a> Cursor<'a> {
    /// `loc(...)` if it is next.
    pub(super) fn trailing_loc(&mut self) -> Result<RawLoc<'a>> {
        if !self.eat_word("loc") {
            return Ok(RawLoc::Unknown);
        }
        self.expect("(")?;
        let loc = self.location()?;
        self.expect(")")?;
        Ok(loc)
    }

    fn location(&mut self) -> Result<RawLoc<'a>> {
        self.nested(|c| c.location_inner())
    }

    fn location_inner(&mut self) -> Result<RawLoc<'a>> {
        let start = {
            self.skip_space();
            self.at
        };
        if self.eat("#") {
            return Ok(RawLoc::Alias(self.suffix("a location alias")?, start));
        }
        if self.peek("\"") {
            let name = self.string()?;
            if self.eat(":") {
                let line = self.small("a line")?;
                self.expect(":")?;
                let column = self.small("a column")?;
                if self.eat_word("to") {
                    // A range: its end adds nothing for a reader.
                    self.eat(":");
                    self.small("a line or column")?;
                    if self.eat(":") {
                        self.small("a column")?;
                    }
                }
                return Ok(RawLoc::Place(Place { file: name, line, column }));
            }
            let inner = if self.eat("(") {
                let inner = self.location()?;
                self.expect(")")?;
                inner
            } else {
                RawLoc::Unknown
            };
            return Ok(RawLoc::Name(name, Box::new(inner)));
        }
        match self.word("a location")? {
            "unknown" => Ok(RawLoc::Unknown),
            "callsite" => {
                self.expect("(")?;
                let callee = self.location()?;
                if !self.eat_word("at") {
                    return Err(self.expected("`at`"));
                }
                let caller = self.location()?;
                self.expect(")")?;
                Ok(RawLoc::CallSite(Box::new(callee), Box::new(caller)))
            }
            "fused" => {
                if self.peek("<") {
                    self.balanced()?;
                }
                self.expect("[")?;
                Ok(RawLoc::Fused(self.list("]", Cursor::location)?))
            }
            other => Err(self.error_at(start, format!("expected a location, found `{other}`"))),
        }
    }

    fn small(&mut self, what: &str) -> Result<u32> {
        let value = self.natural(what)?;
        u32::try_from(value).map_err(|_| self.error(format!("{what} number is out of range")))
    }
}

/// The module's locations while they are being resolved.
pub(super) struct LocTable<'a> {
    text: &'a str,
    aliases: HashMap<&'a str, RawLoc<'a>>,
    /// `None` while an alias is being resolved: meeting it again is a cycle.
    done: HashMap<&'a str, Option<LocId>>,
    interned: HashMap<Location, LocId>,
    pub(super) locations: Vec<Location>,
}

impl<'a> LocTable<'a> {
    pub(super) fn new(text: &'a str, aliases: HashMap<&'a str, RawLoc<'a>>) -> Self {
        let mut table =
            LocTable { text, aliases, done: HashMap::new(), interned: HashMap::new(), locations: Vec::new() };
        table.intern(Location::Unknown);
        table
    }

    pub(super) fn resolve(&mut self, raw: &RawLoc<'a>) -> Result<LocId> {
        self.resolve_at(raw, 0, 0)
    }

    fn resolve_at(&mut self, raw: &RawLoc<'a>, from: usize, depth: usize) -> Result<LocId> {
        if depth > MAX_CHAIN {
            return Err(ParseError::new(self.text, from, format!("a location of more than {MAX_CHAIN} levels")));
        }
        let location = match raw {
            RawLoc::Unknown => return Ok(LocId::UNKNOWN),
            RawLoc::Alias(name, at) => return self.resolve_alias(name, *at, depth),
            RawLoc::Place(place) => Location::Place(place.clone()),
            RawLoc::Name(name, inner) => Location::Name(name.clone(), self.resolve_at(inner, from, depth + 1)?),
            RawLoc::CallSite(callee, caller) => Location::CallSite {
                callee: self.resolve_at(callee, from, depth + 1)?,
                caller: self.resolve_at(caller, from, depth + 1)?,
            },
            RawLoc::Fused(parts) => {
                let parts: Result<_> = parts.iter().map(|p| self.resolve_at(p, from, depth + 1)).collect();
                Location::Fused(parts?)
            }
        };
        Ok(self.intern(location))
    }

    fn resolve_alias(&mut self, name: &'a str, at: usize, depth: usize) -> Result<LocId> {
        match self.done.get(name) {
            Some(Some(id)) => return Ok(*id),
            Some(None) => return Err(ParseError::new(self.text, at, format!("the location #{name} contains itself"))),
            None => {}
        }
        let Some(raw) = self.aliases.get(name).cloned() else {
            return Err(ParseError::new(self.text, at, format!("the location #{name} is not defined in this file")));
        };
        self.done.insert(name, None);
        let id = self.resolve_at(&raw, at, depth + 1)?;
        self.done.insert(name, Some(id));
        Ok(id)
    }

    fn intern(&mut self, location: Location) -> LocId {
        if let Some(id) = self.interned.get(&location) {
            return *id;
        }
        let id = LocId(self.locations.len() as u32);
        self.locations.push(location.clone());
        self.interned.insert(location, id);
        id
    }
}
