#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/jobs/node/node_folders.h"
#include "gyre/jobs/orders/node_report.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::node::internal {

/// The steps of an attempt on a node, each written down before it is taken.
enum class Step {
  kAccepted,   ///< Nothing has been done yet that could not be done again.
  kPreparing,  ///< The folders are made; setup and preparation have begun, or are about to.
  kPrepared,   ///< The facts are known.
  kRunning,    ///< The processes have been started, or are about to be.
  kStopped,    ///< They have ended, or never ran; the record says how it went; the node may not be clean yet.
};

/// What a node program has to know of its attempt to go on with it after a restart. The node program writes it down;
/// the process of the attempt moves it on.
struct SavedAttempt {
  orders::WorkOrder order;
  Step step = Step::kAccepted;
  std::int64_t started_us = 0;               ///< Of CLOCK_REALTIME.
  double started_s = 0;                      ///< Of CLOCK_BOOTTIME, which no one sets.
  std::string boot;                          ///< Of which boot.
  std::optional<orders::NodeFacts> facts;    ///< From kPrepared on.
  std::vector<orders::NodeFacts> all_facts;  ///< From kRunning on.
  std::optional<orders::ExitRecord> record;  ///< From kStopped on.
  std::vector<std::string> memory;           ///< Names in /dev/shm that the job's user had before the job.
  std::vector<std::string> notes;
  std::map<std::string, std::uint64_t> log_lengths;  ///< By path: how long a log was before this attempt wrote to it.
};

nlohmann::json to_json(const SavedAttempt& state);
/// Error(kCorruptData); `what` names the text.
SavedAttempt saved_attempt_from_json(const nlohmann::json& json, std::string_view what);

/// What the process of an attempt may change: how far it is, its facts, its record, its notes and where its logs begin.
nlohmann::json progress_of(const SavedAttempt& state);
/// `state` with such changes, from a process that runs as the job's account and may say anything. Error(kCorruptData)
/// for a change that would mislead others: a step back, other facts than before or than the order needs, notes taken
/// back, a record where none belongs. Pure.
SavedAttempt with_progress(SavedAttempt state, const nlohmann::json& progress);
/// Notes only ever become more. Error(kCorruptData).
std::vector<std::string> with_more_notes(std::vector<std::string> notes, const nlohmann::json& all);

/// Atomically; only our user may read it. Error(kIo, kResourceExhausted).
/// Beside what a node's report has, in a record that the node keeps: for a service whose records are older.
inline constexpr const char* kOrderOfRecord = "order";

void save(const SavedAttempt& state, const NodeFolders& folders);
/// As write_file_atomically(); errors say where the file lies below the node's folder, whatever name own() has.
void write_own_file(const NodeFolders& folders, const std::filesystem::path& file, const std::string& text);
/// The attempt has ended, and save() cannot say so because the disk is full: until it can, load_state() says that the
/// attempt has stopped, and not how. Needs no room.
void mark_ended(const NodeFolders& folders);
/// The attempt has its exit record: forgets what save() and mark_ended() have written.
/// std::filesystem::filesystem_error.
void remove_state(const NodeFolders& folders);
/// Nothing when there is none. Error(kCorruptData).
std::optional<SavedAttempt> load_state(const NodeFolders& folders);

/// When constraints.maxWallClockTime of the attempt is over, or `more` later.
Deadline wall_clock_limit(const SavedAttempt& state, std::chrono::seconds more = std::chrono::seconds(0));

/// Seconds of boot_clock_us().
double boot_time_s();

}  // namespace gyre::jobs::node::internal
