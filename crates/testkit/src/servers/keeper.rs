//! A server process that ends with the one who started it, however that ends.
//!
//! Between us and the server stands a small shell, the keeper. It takes orders on its input, and
//! when that closes (we are done, or were killed) it ends the server and removes its folder. It
//! is the server's parent, so it knows whether the process it sends a signal to is still there. It
//! has a process group of its own: Ctrl-C reaches us, not it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// How long a server may take from its start until it says that it is ready.
pub const START_LIMIT: Duration = Duration::from_secs(30);
/// How long it may take to prepare a new data folder.
pub const PREPARE_LIMIT: Duration = Duration::from_secs(60);
/// How often one looks while waiting.
pub(super) const POLL: Duration = Duration::from_millis(10);

/// How many lines of a server's log are shown when it fails.
const SHOWN_LINES: usize = 40;
/// How often a start is tried again for a reason that passes.
const ATTEMPTS: usize = 5;
/// What a server says when it could not start, and could a moment later: the address is taken; a
/// killed PostgreSQL still has processes that are about to notice.
const PASSING: [&str; 2] = ["Address already in use", "pre-existing shared memory block"];

/// The folder within a server's folder where a disk of its own is mounted, if it has one.
pub(super) const DISK: &str = "disk";

/// `$1`: the folder; `$2`: the signal that ends the server when there is nobody to give orders; `$3`: where
/// a disk may be mounted.
const KEEPER: &str = r#"
folder=$1 last=$2 disk=$1/$3 server=
set --
trap : HUP INT TERM PIPE
ended() {
    [ -e /proc/self ] || return 1
    read -r _ _ state _ 2>&- <"/proc/$server/stat" || return 0
    [ "$state" = Z ]
}
children() {
    cat "/proc/$server/task/$server/children" 2>&-
}
slay() {
    ended || kill -s KILL "$server" $(children)
    wait "$server"
    server=
}
while IFS= read -r order; do
    case $order in
    +*) set -- "$@" "${order#+}" ;;
    run) "$@" >>"$folder/log" 2>&1 </dev/null; echo $?; set -- ;;
    start) "$@" >>"$folder/log" 2>&1 </dev/null & server=$!; echo "$server"; set -- ;;
    kill) slay; echo gone ;;
    *) kill -s "$order" "$server"; kill -s "$order" $(children) 2>&-; echo sent ;;
    esac
done
if [ "$server" ]; then
    tries=0
    until [ "$last" = KILL ] || ended || [ "$tries" = 100 ]; do
        kill -s "$last" "$server"
        sleep 0.05
        tries=$((tries + 1))
    done
    slay
fi
if [ -d "$disk" ]; then
    umount "$disk" || umount -l "$disk"
fi
rm -rf -- "$folder"
"#;

/// Looks again and again until something is so; says what was seen last if it never is.
pub fn wait(what: &str, limit: Duration, mut is_so: impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 0..limit.as_millis() / POLL.as_millis() {
        if is_so().is_ok() {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
    match is_so() {
        Ok(()) => Ok(()),
        Err(error) => bail!("waited {limit:?} until {what}; {error:#}"),
    }
}

/// What to run: a program and its arguments.
#[derive(Debug, Clone)]
pub(super) struct Line(Vec<OsString>);

impl Line {
    pub(super) fn new(program: impl AsRef<OsStr>) -> Self {
        Self(vec![program.as_ref().to_owned()])
    }

    pub(super) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.0.push(arg.as_ref().to_owned());
        self
    }

    pub(super) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.0.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// The same, run by `before`, which ends by running its arguments.
    pub(super) fn behind(mut self, mut before: Self) -> Self {
        before.0.append(&mut self.0);
        before
    }
}

/// What ends a server that is no longer needed.
#[derive(Debug, Clone, Copy)]
pub(super) enum LastSignal {
    /// At once; nobody needs its data.
    Kill,
    /// At once, but it may put away what outlives processes: PostgreSQL's shared memory.
    Quit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Down,
    Running,
    Paused,
}

/// A server that can be started, killed and started again in its folder. Both are gone once this
/// is dropped.
pub(super) struct Process {
    name: &'static str,
    folder: PathBuf,
    keeper: Mutex<Keeper>,
}

struct Keeper {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    state: State,
    /// The process that was started last.
    pid: String,
}

impl Process {
    /// A keeper and a new folder under `base`; nothing runs yet.
    pub(super) fn new(name: &'static str, base: &Path, last: LastSignal) -> Result<Self> {
        let folder = new_folder(name, base)?;
        let last = match last {
            LastSignal::Kill => "KILL",
            LastSignal::Quit => "QUIT",
        };
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper"]).arg(&folder).args([last, DISK]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("cannot run sh")?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("its output was piped")?);
        let keeper =
            Mutex::new(Keeper { child, orders, answers, state: State::Down, pid: String::new() });
        Ok(Self { name, folder, keeper })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn state(&self) -> State {
        self.keeper().state
    }

    /// Whether it ended by itself since it was started.
    pub(super) fn has_fallen(&self) -> bool {
        let keeper = self.keeper();
        keeper.state != State::Down && has_ended(&keeper.pid)
    }

    /// Runs a command that ends by itself and must succeed.
    pub(super) fn prepare(&self, line: Line) -> Result<()> {
        let limit = Line::new("timeout").arg(PREPARE_LIMIT.as_secs().to_string());
        let mut keeper = self.keeper();
        keeper.hand_over(&line.behind(limit))?;
        let status = keeper.ask("run")?;
        if status != "0" {
            bail!("{} could not be prepared ({status}); it says:\n{}", self.name, self.log(0));
        }
        Ok(())
    }

    /// Starts the server and waits until its log has a line with `ready`. That its own log says
    /// so is what makes it certain that nobody else answers at its address. Fails with
    /// [`Passing`] if another address, or a moment later, may do.
    pub(super) fn start(&self, line: &Line, ready: &str) -> Result<()> {
        let mut keeper = self.keeper();
        ensure!(keeper.state == State::Down, "{} runs already", self.name);
        let begin = fs::metadata(self.folder.join("log")).map_or(0, |log| log.len());
        keeper.hand_over(line)?;
        let pid = keeper.ask("start")?;
        (keeper.state, keeper.pid) = (State::Running, pid.clone());
        for _ in 0..START_LIMIT.as_millis() / POLL.as_millis() {
            let log = self.log(begin);
            if log.contains(ready) {
                return Ok(());
            }
            if has_ended(&pid) {
                keeper.kill()?;
                let log = self.log(begin);
                if PASSING.iter().any(|reason| log.contains(reason)) {
                    return Err(Passing { name: self.name, log }.into());
                }
                bail!("{} ended at once; it says:\n{}", self.name, tail(&log));
            }
            std::thread::sleep(POLL);
        }
        keeper.kill()?;
        bail!(
            "{} was not ready within {START_LIMIT:?}; it says:\n{}",
            self.name,
            tail(&self.log(begin))
        );
    }

    /// Kills it if it runs, and starts it in the same folder, at the same address.
    pub(super) fn restart(&self, line: &Line, ready: &str) -> Result<()> {
        self.kill()?;
        patiently(|| {
            let started = self.start(line, ready);
            if started.as_ref().is_err_and(|error| error.is::<Passing>()) {
                std::thread::sleep(POLL * 10);
            }
            started
        })
    }

    /// Ends it the hard way, with the processes it started. Returns when it is gone.
    pub(super) fn kill(&self) -> Result<()> {
        self.keeper().kill()
    }

    /// Stops it where it stands, with the processes it started; its connections stay open and nobody
    /// answers.
    pub(super) fn pause(&self) -> Result<()> {
        self.keeper().signal("STOP", State::Paused)
    }

    pub(super) fn resume(&self) -> Result<()> {
        self.keeper().signal("CONT", State::Running)
    }

    /// Everything it said, over all its starts.
    pub(super) fn said(&self) -> String {
        self.log(0)
    }

    /// The log from `begin`. What cannot be read is left out: it is for people, and for `ready`.
    fn log(&self, begin: u64) -> String {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        let begin = usize::try_from(begin).unwrap_or(usize::MAX).min(log.len());
        String::from_utf8_lossy(&log[begin..]).into_owned()
    }

    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut keeper = self.keeper();
        drop(keeper.orders.take());
        // Only fails if somebody else waited for the keeper; then there is nothing to wait for.
        drop(keeper.child.wait());
    }
}

impl Keeper {
    fn hand_over(&mut self, line: &Line) -> Result<()> {
        for arg in &line.0 {
            let arg = arg.as_bytes();
            ensure!(!arg.contains(&b'\n'), "an argument of a server has a line break");
            self.send(&[b"+", arg].concat())?;
        }
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        if self.state != State::Down {
            self.ask("kill")?;
            self.state = State::Down;
        }
        Ok(())
    }

    fn signal(&mut self, name: &str, then: State) -> Result<()> {
        ensure!(self.state != State::Down, "it does not run");
        self.ask(name)?;
        self.state = then;
        Ok(())
    }

    fn ask(&mut self, order: &str) -> Result<String> {
        self.send(order.as_bytes())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        ensure!(answer.ends_with('\n'), "the keeper of a server is gone");
        answer.pop();
        Ok(answer)
    }

    fn send(&mut self, order: &[u8]) -> Result<()> {
        let orders = self.orders.as_mut().context("the keeper has been dismissed")?;
        orders.write_all(&[order, b"\n"].concat()).context("the keeper of a server is gone")
    }
}

/// A start that failed for a reason that passes: another address, or a moment later, may do.
#[derive(Debug)]
pub(super) struct Passing {
    name: &'static str,
    log: String,
}

impl std::fmt::Display for Passing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} could not start; it says:\n{}", self.name, tail(&self.log))
    }
}

impl std::error::Error for Passing {}

/// Tries again, some times, what failed for a reason that passes.
pub(super) fn patiently<T>(mut start: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match start() {
            Err(error) if error.is::<Passing>() => {}
            done => return done,
        }
    }
    start()
}

fn new_folder(name: &str, base: &Path) -> Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = base.join(format!("qiang-{name}-{}-{number}", std::process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            // Left by a process of the same id whose keeper was killed too.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot create {}", folder.display()));
            }
        }
    }
}

/// Whether a process is over; its keeper may have noticed. Not known without `/proc`.
fn has_ended(pid: &str) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')),
        Err(_) => Path::new("/proc/self").exists(),
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{LastSignal, Line, Passing, Process, patiently};

    fn process() -> Process {
        Process::new("test", &std::env::temp_dir(), LastSignal::Kill).unwrap()
    }

    fn shell(script: &str) -> Line {
        Line::new("sh").args(["-c", script])
    }

    #[test]
    fn server_and_folder_end_with_the_one_who_started_them() {
        let process = process();
        let script = "echo $$ >pid; echo listening; exec tail -f /dev/null";
        let line = shell(&format!("cd '{}'; {script}", process.folder().display()));
        process.start(&line, "listening").unwrap();
        let pid = std::fs::read_to_string(process.folder().join("pid")).unwrap();
        let (server, folder) = (format!("/proc/{}", pid.trim()), process.folder().to_owned());
        assert!(Path::new(&server).exists());
        drop(process);
        assert!(!Path::new(&server).exists(), "{server} survived");
        assert!(!folder.exists(), "{} was left", folder.display());
    }

    #[test]
    fn a_server_that_fails_shows_what_it_said() {
        let process = process();
        let error = process.start(&shell("echo 'no such disk'; exit 1"), "listening").unwrap_err();
        assert!(error.to_string().contains("no such disk"), "{error}");
        let error = process.prepare(shell("echo 'no room'; exit 3")).unwrap_err();
        assert!(error.to_string().contains("(3)"), "{error}");
        assert!(error.to_string().contains("no room"), "{error}");
    }

    #[test]
    fn only_what_passes_is_tried_again() {
        let process = process();
        let mut attempts = 0;
        let error = patiently(|| {
            attempts += 1;
            process.start(&shell("echo 'bind: Address already in use'"), "listening")
        });
        let error = error.unwrap_err();
        assert!(error.is::<Passing>(), "{error:#}");
        assert_eq!(attempts, super::ATTEMPTS);
        patiently(|| process.start(&shell("echo listening; exec tail -f /dev/null"), "listening"))
            .unwrap();
        let error = process.start(&shell("echo listening"), "listening").unwrap_err();
        assert!(error.to_string().contains("runs already"), "{error}");
    }

    #[test]
    fn arguments_arrive_as_they_were_given() {
        let process = process();
        let line = Line::new("printf").args(["<%s>\\n", "a b", "", "$x", "\\", "'\"+"]);
        process.prepare(line).unwrap();
        assert_eq!(process.log(0), "<a b>\n<>\n<$x>\n<\\>\n<'\"+>\n");
    }
}
