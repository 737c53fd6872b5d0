#pragma once

#include <filesystem>
#include <string>

#include "gyre/jobs/node/node_folders.h"
#include "gyre/jobs/orders/work_order.h"
#include "gyre/net/handshake.h"

namespace gyre::jobs::drivers {

/// The key of a service's node programs: made once per file, for our user alone. Error(kIo, kInvalidArgument).
net::JobKey key_in(const std::filesystem::path& file);
/// The secret that the nodes of an attempt share, as WorkOrder::key.
std::string key_of_attempt(const net::JobKey& key, const std::string& attempt);

/// Before an attempt is submitted for the first time: makes the folder in `store` of the logs that its nodes will send,
/// where they will. `order`, `folders`: as check_order().
void make_log_folder(const std::filesystem::path& store, const orders::WorkOrder& order,
                     const node::NodeFolders& folders);

/// What a program has said at its end, for a sentence.
std::string one_line(std::string text);

/// What no driver can run: Error(kInvalidArgument). `order`: completed. `folders`: of its nodes.
void check_order(const orders::WorkOrder& order, const node::NodeFolders& folders);

}  // namespace gyre::jobs::drivers
