#include "apps/gyre/stage_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <optional>
#include <utility>

#include "apps/gyre/usage_error.h"
#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/base/parse.h"
#include "gyre/base/progress_bar.h"

namespace gyre::app {

namespace {

constexpr std::chrono::milliseconds kBetweenTellings{500};
constexpr std::uint64_t kMostSasBytes = 64 * 1024;

/// "@FILE", "env:NAME", "-" for standard input, or the text itself.
std::string read_sas(const std::string& given) {
  if (given == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  if (given.starts_with('@')) return std::string(as_text(read_file(given.substr(1), kMostSasBytes)));
  if (!given.starts_with("env:")) return given;
  const std::string name = given.substr(4);
  const auto value = environment_variable(name.c_str());
  if (!value) throw UsageError(fmt::format("--sas names the variable '{}', which is not set", name));
  return *value;
}

/// Of this much of the work, this many seconds were needed: what is left will need as many.
std::string note_of(const store::StageProgress& progress, double seconds) {
  const double rate = static_cast<double>(progress.read_bytes) / std::max(seconds, 1e-3);
  std::string note = fmt::format("{} of {} files, {}/s", progress.done_files, progress.total_files,
                                 format_bytes(static_cast<std::uint64_t>(rate)));
  const auto left = static_cast<double>(progress.total_bytes - progress.done_bytes);
  if (rate > 0 && left > 0) note += fmt::format(", {:.0f} s left", left / rate);
  if (progress.setbacks > 0) note += fmt::format(", {} tried again", progress.setbacks);
  return note;
}

}  // namespace

store::Credentials stage_credentials(const std::string& sas, const std::vector<std::string>& environment) {
  store::Credentials credentials = store::credentials_from(environment);
  if (sas.empty()) return credentials;
  credentials.azure_sas = read_sas(sas);
  credentials.sas_is_for_all = true;
  if (sas.starts_with('@')) credentials.renewed_sas = [sas] { return read_sas(sas); };
  return credentials;
}

store::Receipt stage_with_progress(const store::Manifest& manifest,
                                   const std::vector<std::unique_ptr<store::Source>>& sources,
                                   store::StageOptions options, EndSignals& signals, bool quiet,
                                   const std::function<void(const std::string&)>& tell) {
  ProgressBar bar("staging", std::max<std::uint64_t>(manifest.stored_bytes(), 1),
                  progress_options_from_environment(STDERR_FILENO));
  const auto began = SteadyClock::now();
  std::optional<SteadyClock::time_point> told;
  options.tick = [&](const store::StageProgress& progress) {
    const auto now = SteadyClock::now();
    const double seconds = std::chrono::duration<double>(now - began).count();
    const std::string note = note_of(progress, seconds);
    if (!quiet) bar.update(progress.done_bytes, note);
    if (tell && (!told || now - *told >= kBetweenTellings)) {
      told = now;
      const std::uint64_t percent = 100 * progress.done_bytes / std::max<std::uint64_t>(progress.total_bytes, 1);
      tell(fmt::format("staging the data set, {} %: {}", percent, note));
    }
    return !signals.wait(0);
  };
  store::Receipt receipt = store::stage(manifest, sources, options);
  bar.clear();
  return receipt;
}

store::UploadReceipt upload_with_progress(const std::vector<store::UploadEntry>& entries, const store::Source& target,
                                          store::UploadOptions options, EndSignals& signals, bool quiet) {
  std::uint64_t total = 0;
  for (const store::UploadEntry& entry : entries) total += entry.object.size_bytes;
  ProgressBar bar("uploading", std::max<std::uint64_t>(total, 1), progress_options_from_environment(STDERR_FILENO));
  const auto began = SteadyClock::now();
  options.tick = [&](const store::UploadProgress& progress) {
    const double seconds = std::chrono::duration<double>(SteadyClock::now() - began).count();
    const double rate = static_cast<double>(progress.sent_bytes) / std::max(seconds, 1e-3);
    if (!quiet) {
      bar.update(progress.done_bytes, fmt::format("{} of {} files, {}/s", progress.done_files, progress.total_files,
                                                  format_bytes(static_cast<std::uint64_t>(rate))));
    }
    return !signals.wait(0);
  };
  store::UploadReceipt receipt = store::upload(entries, target, options);
  bar.clear();
  return receipt;
}

}  // namespace gyre::app
