#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/gyre/end_signals.h"
#include "gyre/store/sources/open.h"
#include "gyre/store/staging/manifest.h"
#include "gyre/store/staging/receipt.h"
#include "gyre/store/staging/stage.h"
#include "gyre/store/uploading/upload.h"

namespace gyre::app {

/// Those of the environment, and `sas` as `gyre stage --sas` takes it: @FILE, env:NAME, - for standard input, the text
/// itself, or nothing. UsageError, gyre::Error.
store::Credentials stage_credentials(const std::string& sas, const std::vector<std::string>& environment);

/// store::stage() with a progress bar on a terminal (not where `quiet`), ended by `signals` with Error(kAborted).
/// `options.tick` is not looked at. `tell`: twice a second, how far it has come, for people; may be empty.
store::Receipt stage_with_progress(const store::Manifest& manifest,
                                   const std::vector<std::unique_ptr<store::Source>>& sources,
                                   store::StageOptions options, EndSignals& signals, bool quiet,
                                   const std::function<void(const std::string&)>& tell = {});

/// Likewise for store::upload().
store::UploadReceipt upload_with_progress(const std::vector<store::UploadEntry>& entries, const store::Source& target,
                                          store::UploadOptions options, EndSignals& signals, bool quiet);

}  // namespace gyre::app
