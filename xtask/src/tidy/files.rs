//! The text files of the repository, read once.
//!
//! Walks the folder rather than asking git, so that it also works in an unpacked release. Of
//! `.gitignore` it understands plain `/name` lines, and says so when it meets another.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// One file that is text.
pub(super) struct File {
    /// Relative to the workspace, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

impl File {
    /// The last part of the path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Every text file under `root` that is not ignored, by path.
pub(super) fn read(root: &Path) -> Result<Vec<File>> {
    let ignored = ignored(root)?;
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let here = root.join(&folder);
        for entry in fs::read_dir(&here).with_context(|| format!("cannot list {here:?}"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            if path == ".git" || ignored.contains(&path) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if let Some(text) = text_of(&entry.path())? {
                files.push(File { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// `None` for what is not text, and for what vanished since it was listed.
fn text_of(path: &Path) -> Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8(bytes).ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn ignored(root: &Path) -> Result<Vec<String>> {
    let text = text_of(&root.join(".gitignore"))?.unwrap_or_default();
    let mut names = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.strip_prefix('/') {
            Some(name) if !name.contains(['*', '?', '[']) => {
                names.push(name.trim_end_matches('/').to_owned());
            }
            _ => bail!(".gitignore: tidy understands only plain `/name` lines, not `{line}`"),
        }
    }
    Ok(names)
}
