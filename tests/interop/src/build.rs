//! How the programs are built, in each language.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{in_repository, in_target};

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Language {
    Go,
    Java,
    Node,
    Python,
    Rust,
}

/// The reason why a peer did not run.
#[derive(Clone, Debug)]
pub enum NotRun {
    BuildFailed(String),
    NoTool(&'static str),
}

impl Language {
    /// Builds the program. Returns the command that starts it.
    pub fn build(self) -> Result<Vec<String>, NotRun> {
        match self {
            Self::Go => Workplace::new("go", &["go"])?.go(),
            Self::Java => Workplace::new("java", &["java", "javac", "mvn"])?.java(),
            Self::Node => Workplace::new("node", &["node", "npm"])?.node(),
            Self::Python => Workplace::new("python", &["python3"])?.python(),
            Self::Rust => Ok(in_rust("rslock")),
        }
    }
}

/// Returns the command for a program that is a part of this executable.
pub fn in_rust(program: &str) -> Vec<String> {
    let executable = executable().display().to_string();
    vec![executable, "program".to_owned(), program.to_owned()]
}

/// Returns the executable of this package. The tests of the package run in another executable, in
/// the directory `deps` next to it.
fn executable() -> PathBuf {
    let running = env::current_exe().expect("the system knows the executable");
    let directory = running.parent().expect("it is in a directory");
    let name = env!("CARGO_PKG_NAME");
    match directory.ends_with("deps") {
        true => directory.with_file_name(name),
        false => directory.join(name),
    }
}

/// The directories of a program.
struct Workplace {
    source: PathBuf,
    target: PathBuf,
}

impl Workplace {
    /// Checks that the tools are installed.
    fn new(directory: &str, tools: &[&'static str]) -> Result<Self, NotRun> {
        if let Some(tool) = tools.iter().find(|tool| !is_installed(tool)) {
            return Err(NotRun::NoTool(tool));
        }
        let target = in_target(directory);
        fs::create_dir_all(&target).map_err(|error| NotRun::BuildFailed(error.to_string()))?;
        Ok(Self {
            source: in_repository("tests/interop").join(directory),
            target,
        })
    }

    fn go(&self) -> Result<Vec<String>, NotRun> {
        let peer = self.built("peer");
        run(
            &self.source,
            &["go", "build", "-mod=readonly", "-o", &peer, "."],
        )?;
        Ok(vec![peer])
    }

    fn java(&self) -> Result<Vec<String>, NotRun> {
        let target = format!("-Dinterop.target={}", self.target.display());
        let maven = ["mvn", "-q", "-B", "--strict-checksums", &target];
        let goals = ["compile", "dependency:copy-dependencies"];
        run(&self.source, &[&maven[..], &goals].concat())?;
        let path = format!("{}:{}", self.built("classes"), self.built("lib/*"));
        let command = ["java", "-Xmx256m", "-cp", &path, "Peer"];
        Ok(command.map(str::to_owned).into())
    }

    fn node(&self) -> Result<Vec<String>, NotRun> {
        for file in ["package.json", "package-lock.json", "peer.mjs"] {
            let copied = fs::copy(self.source.join(file), self.target.join(file));
            copied.map_err(|error| NotRun::BuildFailed(format!("{file}: {error}")))?;
        }
        run(&self.target, &["npm", "ci", "--no-audit", "--no-fund"])?;
        Ok(vec!["node".to_owned(), self.built("peer.mjs")])
    }

    fn python(&self) -> Result<Vec<String>, NotRun> {
        run(&self.target, &["python3", "-m", "venv", "."])?;
        let list = self.source.join("requirements.txt").display().to_string();
        let pip = self.built("bin/pip");
        run(
            &self.target,
            &[&pip, "install", "-q", "--require-hashes", "-r", &list],
        )?;
        let program = self.source.join("peer.py").display().to_string();
        Ok(vec![self.built("bin/python"), program])
    }

    fn built(&self, path: &str) -> String {
        self.target.join(path).display().to_string()
    }
}

fn is_installed(tool: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(tool).is_file())
}

fn run(directory: &Path, command: &[&str]) -> Result<(), NotRun> {
    let output = Command::new(command[0])
        .args(&command[1..])
        .current_dir(directory)
        .output();
    let said = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => [output.stdout, output.stderr].concat(),
        Err(error) => error.to_string().into_bytes(),
    };
    let said = String::from_utf8_lossy(&said);
    let last: Vec<_> = said.trim().lines().rev().take(5).collect();
    let last: Vec<_> = last.into_iter().rev().collect();
    let text = format!("{} failed: {}", command.join(" "), last.join(" / "));
    Err(NotRun::BuildFailed(text))
}
