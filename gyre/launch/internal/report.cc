#include "gyre/launch/internal/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <string_view>

namespace gyre::launch {

namespace {

std::string explain_kill(const FailureReport& report) {
  const std::optional<std::int64_t>& out_of_memory_kills = report.out_of_memory_kills;
  if (report.memory_limit_bytes) {
    return fmt::format(
        "the kernel killed it because the job reached its memory limit here, {} MB (a container's, or memoryPerNode of "
        "a job file); use fewer ranks or smaller batches, or ask for more memory",
        *report.memory_limit_bytes >> 20);
  }
  if (out_of_memory_kills && *out_of_memory_kills > 0) {
    return "the kernel ran out of memory and killed it (its out-of-memory killer acted during this job; see `dmesg`); "
           "use fewer ranks or smaller batches";
  }
  if (out_of_memory_kills) return "a `kill -9`, or a batch system's limit (this host did not run out of memory)";
  return "the kernel's out-of-memory killer (see `dmesg`) or a `kill -9`";
}

std::string explain_signal(int signal, const FailureReport& report) {
  switch (signal) {
    case SIGKILL: return explain_kill(report);
    case SIGSEGV: return "a memory error in native code; `ulimit -c unlimited` keeps a core file for gdb";
    case SIGBUS: return "shared memory or a mapped file ran out of space; see `df /dev/shm` and the disk";
    case SIGABRT: return "an uncaught exception or a failed check in native code; its last lines name it";
    case SIGILL: return "it was built for a different processor type";
    case SIGTERM: return "a user or a batch system sent this process SIGTERM";
    case SIGXCPU: return "its processor time limit (`ulimit -t`)";
    case SIGXFSZ: return "its file size limit (`ulimit -f`)";
    default: return {};
  }
}

/// torch's words for a backend that it does not know differ between its versions.
bool torch_lacks_our_backend(const std::string& line) {
  const std::size_t place = line.find("Unknown ");
  if (place == std::string::npos) return false;
  const std::string_view rest = std::string_view(line).substr(place);
  return rest.starts_with("Unknown backend type gyre") || rest.starts_with("Unknown c10d backend type GYRE") ||
         rest.starts_with("Unknown backend 'gyre'");
}

/// What Python raises where somebody should have typed something.
bool wanted_input(const FailureReport& report) {
  return report.error && (report.error->error.starts_with("EOFError: EOF when reading") ||
                          report.error->error.starts_with("bdb.BdbQuit"));
}

/// What a script that was written for something else lacks here; empty: nothing of that kind.
std::string explain_import(const FailureReport& report) {
  if (!report.error) return {};
  const std::string& error = report.error->error;
  const bool no_horovod = error == "ModuleNotFoundError: No module named 'horovod'";
  // Their ranks run under --horovod-compat anyhow.
  if (no_horovod && report.is_services_job) {
    return "neither Horovod is installed on this node nor Gyre's Python package, which stands in for it; install "
           "gyre-train there, or in the image of the job's container (on hosts with ssh: docs/guide/ssh.md)";
  }
  if (no_horovod) {
    return "Horovod is not installed; `gyre run --horovod-compat` runs its scripts unchanged, or write `import "
           "gyre.torch as hvd` (docs/guide/from_horovod.md)";
  }
  // Hugging Face Accelerate's list of backends for CPUs is its own.
  if (error.find("Your assigned backend gyre is not available") != std::string::npos) {
    return "Accelerate accepts only its own list of backends but uses a process group that exists: call "
           "torch.distributed.init_process_group(\"gyre\") before TrainingArguments or Accelerator, without "
           "ddp_backend "
           "(docs/guide/from_ddp.md)";
  }
  if (error.find("Distributed package doesn't have NCCL built in") != std::string::npos) {
    return "this torch has no NCCL; for tensors in host memory write init_process_group(\"gyre\") "
           "(docs/guide/from_ddp.md)";
  }
  return {};
}

std::string explain(const FailureReport& report) {
  if (wanted_input(report)) {
    return fmt::format(
        "it tried to read input, but its stdin was at its end; `gyre run --stdin {}` connects it to this terminal "
        "(docs/guide/debugging.md)",
        report.rank);
  }
  if (report.child_failed_to_import) {
    return "a child process that it has spawned (such as a DataLoader worker) imported the script again and failed: "
           "put the script's top-level code under `if __name__ == '__main__':`";
  }
  if ((report.error && torch_lacks_our_backend(report.error->error)) ||
      std::ranges::any_of(report.last_lines, torch_lacks_our_backend)) {
    return "gyre-train is not installed for this Python, so torch does not know the backend; write `import "
           "gyre.distributed` before init_process_group, or install it (in a checkout: `./dev build`)";
  }
  if (std::string what = explain_import(report); !what.empty()) return what;
  if (report.status.signal != 0) return explain_signal(report.status.signal, report);
  const int code = report.status.code;
  if (code == 126) return "a shell could not run a command: not executable";
  if (code == 127) return "a shell did not find a command";
  constexpr int kSignals = 64;
  if (code <= 128 || code > 128 + kSignals) return {};
  const std::string reason = explain_signal(code - 128, report);
  return fmt::format("the program that it ran was killed by {}{}", signal_name(code - 128),
                     reason.empty() ? "" : ": " + reason);
}

/// As a collective without them fails. Other exit codes are the program's own, and one that was killed had another
/// reason.
bool may_have_needed_them(const FailureReport& report) {
  return report.they_left_a_group && report.status == ExitStatus{.code = 1};
}

}  // namespace

std::string interrupt_words(std::chrono::milliseconds grace, bool on_terminal) {
  return fmt::format(
      "{}gyre run: Ctrl-C: stopping the ranks; they will be killed in {:g} s, or at once by another Ctrl-C\n",
      on_terminal ? "\n" : "", std::chrono::duration<double>(grace).count());
}

std::string stop_words(int signal, std::size_t ranks, const std::vector<int>& killed, std::chrono::milliseconds grace) {
  std::string text;
  const bool one = killed.size() == 1;
  if (!killed.empty()) {
    text += fmt::format("gyre run: rank{} {} had not stopped after {:g} s and {} killed\n", one ? "" : "s",
                        describe_ranks(killed), std::chrono::duration<double>(grace).count(), one ? "was" : "were");
  }
  if (signal == SIGPIPE) return text;
  return text + fmt::format("gyre run: stopped by {}; {} ended\n", signal_name(signal),
                            ranks == 1 ? "the rank has" : fmt::format("all {} ranks have", ranks));
}

std::string place_seen_from(const std::string& folder, const std::string& place) {
  return place.starts_with(folder) ? place.substr(folder.size()) : place;
}

std::string describe_exit(const ExitStatus& status) {
  if (status.signal == 0) return fmt::format("exit code {}", status.code);
  return fmt::format("{} (signal {})", signal_name(status.signal), status.signal);
}

std::string describe_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[first]);
    if (last > first) text += (last == first + 1 ? ", " : "-") + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

std::string failure_block(const FailureReport& report, bool colour) {
  const double seconds = static_cast<double>(report.after.count()) / 1000.0;
  std::string text;
  const auto row = [&text](std::string_view name, const std::string& value) {
    if (!value.empty()) text += fmt::format("  {:<12} {}\n", name, value);
  };
  const auto watchdog = judge_watchdogs(report.watchdogs, report.ranks);
  const std::string title =
      watchdog ? fmt::format(
                     "gyre run: {}; the watchdog of the device's library ended the job, {:.1f} s after the "
                     "start: {}",
                     watchdog->cause, seconds, describe_exit(report.status))
               : fmt::format("gyre run: rank {} of {} failed first, {:.1f} s after the start: {}", report.rank,
                             report.ranks, seconds, describe_exit(report.status));
  text += colour ? fmt::format("\x1b[1;31m{}\x1b[0m\n", title) : title + "\n";
  if (report.error) {
    const auto& [place, source, error] = *report.error;
    row("your line", source.empty() ? place : fmt::format("{}: {}", place, source));
    row("error", error);
  }
  if (watchdog) {
    row("call", watchdog->call);
    row("Gyre's report", report.stall);
  }
  row("host", report.host);
  row("pid", std::to_string(report.pid));
  row("likely cause", watchdog ? watchdog->advice : explain(report));
  if (!report.ended_because.empty()) {
    const auto count = report.ended_because.size();
    row("others", fmt::format("{} rank{} ended because of it: {}", count, count == 1 ? " was" : "s were",
                              describe_ranks(report.ended_because)));
  }
  if (!report.finished_before.empty()) {
    row("before it",
        fmt::format("rank{} {} had already ended with exit code 0{}", report.finished_before.size() == 1 ? "" : "s",
                    describe_ranks(report.finished_before),
                    may_have_needed_them(report)
                        ? " (uneven number of batches? see join(); or a collective on some ranks only, such as "
                          "evaluation on rank 0)"
                        : ""));
  }
  row("log file",
      report.log_file.value_or(report.is_services_job ? "" : "none; `--log-dir DIR` keeps one for each rank"));
  text += report.last_lines.empty() ? "  it wrote nothing\n" : "  its last lines\n";
  for (const std::string& line : report.last_lines) text += fmt::format("    | {}\n", line);
  return text;
}

}  // namespace gyre::launch
