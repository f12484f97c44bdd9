-- P4 in Neovim: fanin's language server. Put this file into ~/.config/nvim/plugin/.

local command = { "fanin", "lsp" } -- or the full path: { "/home/me/fanin/.venv/bin/fanin", "lsp" }

-- Neovim takes a file that ends in .p4 for one of Perforce.
if vim.filetype then
  vim.filetype.add({ extension = { p4 = "p4", p4i = "p4" } })
end
vim.cmd([[autocmd BufRead,BufNewFile *.p4,*.p4i setlocal filetype=p4 commentstring=//\ %s expandtab shiftwidth=4]])

local function keys(buffer)
  local function map(key, action)
    vim.keymap.set("n", key, action, { buffer = buffer })
  end
  map("gd", vim.lsp.buf.definition)
  map("gr", vim.lsp.buf.references)
  map("K", vim.lsp.buf.hover)
  map("<leader>rn", vim.lsp.buf.rename)
  map("<leader>f", function()
    if vim.lsp.buf.format then
      vim.lsp.buf.format({ async = true })
    else
      vim.lsp.buf.formatting() -- Neovim 0.7
    end
  end)
  vim.bo[buffer].omnifunc = "v:lua.vim.lsp.omnifunc" -- completion with Ctrl-X Ctrl-O
end

if vim.fn.has("nvim-0.11") == 1 then
  vim.lsp.config("fanin", {
    cmd = command,
    filetypes = { "p4" },
    root_markers = { ".git" },
    on_attach = function(_, buffer)
      keys(buffer)
    end,
  })
  vim.lsp.enable("fanin")
else
  -- One server for each folder, as Neovim 0.7 has no vim.lsp.start.
  local servers = {}
  local function attach()
    local buffer = vim.api.nvim_get_current_buf()
    local file = vim.api.nvim_buf_get_name(buffer)
    local git = vim.fn.finddir(".git", vim.fn.fnamemodify(file, ":p:h") .. ";")
    local root = git ~= "" and vim.fn.fnamemodify(git, ":p:h:h") or vim.fn.fnamemodify(file, ":p:h")
    if not servers[root] then
      servers[root] = vim.lsp.start_client({
        name = "fanin",
        cmd = command,
        root_dir = root,
        workspace_folders = { { uri = vim.uri_from_fname(root), name = root } },
        on_exit = function()
          servers[root] = nil
        end,
      })
    end
    if servers[root] then
      vim.lsp.buf_attach_client(buffer, servers[root])
      keys(buffer)
    end
  end
  vim.api.nvim_create_autocmd("FileType", { pattern = "p4", callback = attach })
end
