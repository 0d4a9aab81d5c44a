// The files of a TLS server.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <string>

#include "kvcast/core/status.h"

namespace kvcast {

// Loads PEM files: the certificate with its chain, and its key. Allows TLS 1.2 and 1.3 only. Not ok
// (kInvalidArgument): a file cannot be read or parsed; the key has a password or belongs to another
// certificate; the certificate is not valid now. The error is one line with the name of the file.
Status LoadTlsFiles(const std::string& certificate, const std::string& key,
                    boost::asio::ssl::context& context);

}  // namespace kvcast
