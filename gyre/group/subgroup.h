#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gyre/group/group.h"

namespace gyre::group {

/// Subgroups are numbered up to here, and a subgroup's channels are below 2^32.
constexpr std::uint64_t kLastSubgroup = (std::uint64_t{1} << 32) - 1;

/// Some of the ranks of `parent` as a group of their own (a process set), over the parent's links and segments.
///
/// `ranks`: the parent's numbers of the members, each once, this rank among them; they are renumbered in the order
/// given, but messages go on naming them by their numbers in the job. `id`, 1 to kLastSubgroup: its number,
/// equal on all members; subgroups that share a rank must have different ones, now and later. Making one exchanges
/// nothing. The parent is kept alive; it must not be a subgroup itself. Error(kInvalidArgument) for anything else.
///
/// A failure is the whole group's: abort(), here or there, and a rank's death fail the parent and all its
/// subgroups. leave() leaves this subgroup alone: members that still wait for this rank within it fail with kPeerLeft,
/// the parent and other subgroups go on. Who leaves the parent has left all its subgroups.
std::unique_ptr<Group> make_subgroup(std::shared_ptr<Group> parent, std::vector<int> ranks, std::uint64_t id);

}  // namespace gyre::group
