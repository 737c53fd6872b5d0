#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "gyre/data/readable_file.h"

namespace gyre::store {

/// Shows the files below the folder `root` of `opener` in `place`, an empty folder of this machine, read-only, through
/// FUSE, until SIGINT, SIGTERM, SIGHUP, or until somebody unmounts it; then the folder is empty again, also when this
/// process was killed. libfuse is loaded here. A process can have one mount. `mounted` is called when files can be
/// read. Readings that fail are EIO, and `report` gets why. Error(kUnsupported): what is missing on this machine.
void serve_mount(const data::FileOpener& opener, const std::string& root, const std::filesystem::path& place,
                 const std::function<void()>& mounted, const std::function<void(const std::string&)>& report);

}  // namespace gyre::store
