KERNEL(128) void add_gelu(const bf16* __restrict__ g_in0, const bf16* __restrict__ g_in1, bf16* __restrict__ g_out0, FastDiv p0, i32 p1, i32 p2) {
  bf16 r_in0[8];
  bf16 r_in1[8];
  bf16 r_out0[8];
  const i32 v0 = (block_x() * 128) + thread_x();
  const i32 v1 = fast_mod_(v0, p0) * 8;
  const i32 v2 = (fast_div_(v0, p0) * p1) + v1;
  const bool v3 = v0 < p2;
  load_if(r_in0, g_in0 + v2, v3);
  load_if(r_in1, g_in1 + v1, v3);
  UNROLL for (i32 v4 = 0; v4 < 8; ++v4) {
    const f32 v5 = to<f32>(r_in0[v4]) + to<f32>(r_in1[v4]);
    const f32 v6 = gelu_tanh_half_(v5);
    const bf16 v7 = to<bf16>(v6);
    r_out0[v4] = v7;
  }
  store_if(g_out0 + v2, r_out0, v3);
}
