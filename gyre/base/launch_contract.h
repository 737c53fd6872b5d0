#pragma once

#include <cstddef>

/// What a launcher (gyre/launch) hands down to the ranks that it starts, which read it in gyre/group: the names of the
/// variables, and the size of the key. docs/guide/launchers.md says what each means; a change there is a change for
/// every other launcher of ranks.
namespace gyre::launch_contract {

constexpr std::size_t kKeyBytes = 32;

constexpr const char* kRank = "GYRE_RANK";
constexpr const char* kSize = "GYRE_SIZE";
constexpr const char* kLocalRank = "GYRE_LOCAL_RANK";
constexpr const char* kLocalSize = "GYRE_LOCAL_SIZE";
/// How many of the ranks, the last ones, are parameter servers; unset: none.
constexpr const char* kServers = "GYRE_SERVERS";
constexpr const char* kRendezvous = "GYRE_RENDEZVOUS";
constexpr const char* kRendezvousDescriptor = "GYRE_RENDEZVOUS_FD";
constexpr const char* kKeyDescriptor = "GYRE_KEY_FD";
constexpr const char* kKeyFile = "GYRE_KEY_FILE";
constexpr const char* kFailureDescriptor = "GYRE_FAILURE_FD";
constexpr const char* kEndedDescriptor = "GYRE_ENDED_FD";
/// Where ranks write what `gyre run --metrics` keeps; unset without that.
constexpr const char* kMetricsDescriptor = "GYRE_METRICS_FD";
/// From a job service, on each host: the job's own folder there, in which its code lies. Hosts may have it at different
/// paths: ranks of `gyre run` over several hosts that would start in the launcher's start in that of their own host.
constexpr const char* kJobFolder = "GYRE_JOB_FOLDER";
/// From a job service: `gyre run` that could start no rank, because it could not reach a host, writes here why.
constexpr const char* kStartFailureFile = "GYRE_START_FAILURE_FILE";
/// From a job service: `gyre run` that could not write all output of its ranks writes here how much is missing.
constexpr const char* kMissingOutputFile = "GYRE_MISSING_OUTPUT_FILE";
/// From a job service: `gyre run` writes here which rank failed first.
constexpr const char* kFailedRankFile = "GYRE_FAILED_RANK_FILE";
/// Random; marks everything that one launcher has started.
constexpr const char* kMarker = "GYRE_LAUNCH";

}  // namespace gyre::launch_contract
