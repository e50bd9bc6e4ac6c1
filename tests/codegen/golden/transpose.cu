KERNEL(256) void transpose(const bf16* __restrict__ g_in0, f32* __restrict__ g_out0, FastDiv p0, i32 p1, i32 p2) {
  bf16* tile0 = (bf16*)(shared_memory());
  bf16 t0[32];
  bf16 s0[32];
  bf16 r_in0[32];
  f32 r_out0[32];
  const i32 v0 = fast_mod_(block_x(), p0);
  const i32 v1 = fast_div_(block_x(), p0);
  const i32 v2 = v1 * 128;
  const i32 v3 = thread_x() % 16;
  const i32 v4 = v3 * 8;
  const i32 v5 = thread_x() / 16;
  const i32 v6 = v0 * 64;
  const i32 v7 = (v5 * 4) + v6;
  const bool v8 = (v2 + v4) < p1;
  UNROLL for (i32 v9 = 0; v9 < 4; ++v9) {
    const i32 v10 = v7 + v9;
    load_if(part<8>(r_in0, v9 * 8), g_in0 + (((v10 * p1) + v2) + v4), v8 && (v10 < p2));
  }
  UNROLL for (i32 v9 = 0; v9 < 4; ++v9) {
    UNROLL for (i32 v11 = 0; v11 < 8; ++v11) {
      t0[(v11 * 4) + v9] = r_in0[(v9 * 8) + v11];
    }
  }
  const i32 v12 = ((v3 + v5) % 16) * 4;
  UNROLL for (i32 v11 = 0; v11 < 8; ++v11) {
    store(tile0 + (((v4 + v11) * 64) + v12), part<4>(t0, v11 * 4));
  }
  sync_block();
  const i32 v13 = v5 * 8;
  UNROLL for (i32 v14 = 0; v14 < 8; ++v14) {
    load(part<4>(s0, v14 * 4), tile0 + (((v13 + v14) * 64) + v12));
  }
  UNROLL for (i32 v14 = 0; v14 < 8; ++v14) {
    UNROLL for (i32 v15 = 0; v15 < 4; ++v15) {
      const f32 v16 = relu_(to<f32>(s0[(v14 * 4) + v15]));
      r_out0[(v14 * 4) + v15] = v16;
    }
  }
  const i32 v17 = v3 * 4;
  const i32 v18 = v2 + v13;
  const bool v19 = (v6 + v17) < p2;
  UNROLL for (i32 v14 = 0; v14 < 8; ++v14) {
    const i32 v20 = v14 + v18;
    store_if(g_out0 + (((v20 * p2) + v6) + v17), part<4>(r_out0, v14 * 4), (v20 < p1) && v19);
  }
}
