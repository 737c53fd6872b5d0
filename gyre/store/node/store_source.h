#pragma once

#include <memory>
#include <string>

#include "gyre/store/sources/open.h"
#include "gyre/store/sources/source.h"

namespace gyre::store::node {

/// As open_source(), and also a store that a daemon on this node serves, a folder of its set or a file:
/// `store:///DIR/JOB[/PATH]`. What a store's reader cannot have from the disk of this node or through its daemon,
/// because the daemon is away or serves another version of the set, it reads from the set's own source, with
/// `credentials`.
std::unique_ptr<Source> open_source_or_store(const std::string& name, const Credentials& credentials);

}  // namespace gyre::store::node
