#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gyre::bench {

/// How often all files are read.
struct Reading {
  std::string place;  ///< A folder of this machine, or the URL of a folder: "store:///scratch/store/job", "http://…/".
  int threads = 1;
  std::size_t piece_bytes = std::size_t{4} << 20;  ///< Of one reading.
  double seconds = 0;                              ///< All files again and again for so long; with 0 `rounds` times.
  int rounds = 1;
  /// Of a store: only files that this node owns; -1 for all, and -2 - N for those that node N does not own.
  int owner = -1;
};

/// {"bytes_per_second", "reads_per_second", "bytes", "reads", "files", "round_seconds": […]}. Each file is opened once,
/// before the measurement; each thread reads whole files into a buffer of its own.
nlohmann::json read_files(const Reading& reading);

/// {"bytes_per_second", "stored_bytes_per_second"}: libdeflate alone inflates gzip files that lie in memory, one a time
/// on each thread, into a buffer that is used again. All of what inflating while staging has to do at least.
nlohmann::json inflate(const std::vector<std::string>& files, int threads, double seconds);

/// {"bytes_per_second"}: AES-256-GCM alone decrypts blocks of 64 KiB in memory: all of what reading from an encrypted
/// store has to do at least.
nlohmann::json decrypt(int threads, double seconds);

/// {"bytes_per_second"}: two processes move messages of so many bytes through TLS 1.3 as nodes of a store use it
/// (TLS_AES_128_GCM_SHA256, a pre-shared key), one only sending and the other only receiving: OpenSSL on a blocking
/// socket, nothing else. The sender prints "ready" when it listens.
void send_over_tls(const std::string& address, int port, std::size_t message_bytes);
nlohmann::json receive_over_tls(const std::string& address, int port, std::size_t message_bytes, double seconds);

}  // namespace gyre::bench
